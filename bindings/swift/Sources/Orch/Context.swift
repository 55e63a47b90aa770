// SPDX-License-Identifier: Apache-2.0
import COrch

public struct LogLevel: OrchConstant {
    public let rawValue: UInt32
    public init(rawValue: UInt32) { self.rawValue = rawValue }

    public static let error = Self(ORCH_LOG_ERROR)
    public static let warning = Self(ORCH_LOG_WARNING)
    public static let notice = Self(ORCH_LOG_NOTICE)
    public static let debug = Self(ORCH_LOG_DEBUG)
}

/// What all handles live in, with a thread of its own: see ``OrchExecutor``.
///
/// The context ends when it and every handle made in it are gone; programs that still run in it are then
/// killed. It never takes the host's signals, children, working directory, environment or standard streams.
public actor Context {
    public struct Options: Sendable {
        /// Absolute path of orch-reaper; nil: beside the library, then the installed folder.
        public var helperPath: String?
        /// Lines above this level are dropped.
        public var logLevel: LogLevel
        /// Called from any call into the context: it must not wait for anything of the context.
        public var log: (@Sendable (LogLevel, String) -> Void)?

        public init(
            helperPath: String? = nil, logLevel: LogLevel = .notice,
            log: (@Sendable (LogLevel, String) -> Void)? = nil
        ) {
            self.helperPath = helperPath
            self.logLevel = logLevel
            self.log = log
        }
    }

    public nonisolated let executor: OrchExecutor

    public nonisolated var unownedExecutor: UnownedSerialExecutor { executor.asUnownedSerialExecutor() }

    /// Starts the context's thread; no process yet.
    public init(_ options: Options = Options()) throws(OrchError) {
        var ctx: OpaquePointer?
        try withCMemory { memory throws(OrchError) in
            var opts = orch_ctx_opts()
            orch_ctx_opts_init(&opts, sizeOf(orch_ctx_opts.self))
            opts.helper_path = try memory.string(options.helperPath)
            opts.log_level = options.logLevel.rawValue
            if let log = options.log {
                opts.log = onLog
                opts.log_userdata = Callback.retained(log)
                opts.log_destroy = releaseCallback
            }
            try check { orch_ctx_new(&opts, &ctx, $0) }
        }
        executor = try OrchExecutor(owning: ctx!)
    }

    /// Makes a handle on the context's thread.
    func make(
        _ unref: @escaping @Sendable (OpaquePointer?) -> OpaquePointer?,
        _ call: @Sendable (OpaquePointer, inout OpaquePointer?) throws(OrchError) -> Void
    ) throws(OrchError) -> Handle {
        var made: OpaquePointer?
        do {
            try call(executor.loop.ctx, &made)
        } catch {
            _ = unref(made)
            throw error
        }
        return Handle(made!, executor, unref)
    }
}

private func onLog(_ userdata: UnsafeMutableRawPointer?, _ level: UInt32, _ message: UnsafePointer<CChar>?) {
    Callback<@Sendable (LogLevel, String) -> Void>.body(userdata)(LogLevel(level), string(message))
}

/// The version of the library that is loaded: "0.1.0".
public var libraryVersion: String { string(orch_version()) }

/// The version that this package was compiled against.
public let headerVersion = (
    major: Int(ORCH_VERSION_MAJOR), minor: Int(ORCH_VERSION_MINOR), patch: Int(ORCH_VERSION_PATCH),
    text: ORCH_VERSION_STRING
)
