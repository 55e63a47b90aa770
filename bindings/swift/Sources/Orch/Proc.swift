// SPDX-License-Identifier: Apache-2.0
import COrch

/// How a program ended.
public enum ExitStatus: Hashable, Sendable {
    case exited(Int32)
    case signaled(Int32)
    /// Stopped by the time limit of ``Sandbox/run(_:_:)``.
    case timedOut

    public var isSuccess: Bool { self == .exited(0) }
}

/// Why a program ended; how is its ``ExitStatus``.
public struct EndReason: OrchConstant {
    public let rawValue: UInt32
    public init(rawValue: UInt32) { self.rawValue = rawValue }

    public static let exited = Self(ORCH_REASON_EXITED)
    public static let signaled = Self(ORCH_REASON_SIGNALED)
    /// After its scope's memory limit had struck.
    public static let memory = Self(ORCH_REASON_MEMORY)
    /// Its scope's time limit was over.
    public static let time = Self(ORCH_REASON_TIME)
    /// Its scope was being stopped.
    public static let stopped = Self(ORCH_REASON_STOPPED)
    /// It could not be started.
    public static let setup = Self(ORCH_REASON_SETUP)
    /// How it ended is not known.
    public static let lost = Self(ORCH_REASON_LOST)
    /// Without success, and its sandbox's private file system was full.
    public static let disk = Self(ORCH_REASON_DISK)
}

/// A program in a ``Scope`` or ``Sandbox``. Dropping the last reference does not end it.
public actor Proc {
    public struct Options: Sendable {
        /// nil: a minimal environment. In a sandbox: added to the sandbox's.
        public var environment: [String: String]?
        /// Inside the scope; nil: "/", in a sandbox the workspace.
        public var workingDirectory: String?
        /// File descriptors, duplicated by the call; nil: /dev/null.
        public var stdin: Int32?
        public var stdout: Int32?
        public var stderr: Int32?
        /// Instead of the descriptors, which are nil then. One output may be both, one terminal all three.
        public var stdinStream: ProgramStream?
        public var stdoutStream: ProgramStream?
        public var stderrStream: ProgramStream?
        /// When it ends, the scope is stopped.
        public var leader: Bool

        public init(
            environment: [String: String]? = nil, workingDirectory: String? = nil, stdin: Int32? = nil,
            stdout: Int32? = nil, stderr: Int32? = nil, stdinStream: ProgramStream? = nil,
            stdoutStream: ProgramStream? = nil, stderrStream: ProgramStream? = nil, leader: Bool = false
        ) {
            self.environment = environment
            self.workingDirectory = workingDirectory
            self.stdin = stdin
            self.stdout = stdout
            self.stderr = stderr
            self.stdinStream = stdinStream
            self.stdoutStream = stdoutStream
            self.stderrStream = stderrStream
            self.leader = leader
        }
    }

    nonisolated let handle: Handle
    private let watch: Watch

    public nonisolated var unownedExecutor: UnownedSerialExecutor {
        handle.executor.asUnownedSerialExecutor()
    }

    init(
        _ argv: [String], _ options: Options, in parent: Handle,
        _ spawn:
            @Sendable (
                OpaquePointer, UnsafePointer<orch_proc_opts>, UnsafeMutablePointer<OpaquePointer?>,
                UnsafeMutablePointer<OpaquePointer?>
            ) -> Int32
    ) throws(OrchError) {
        let watch = Watch()
        var proc: OpaquePointer?
        for stream in [options.stdinStream, options.stdoutStream, options.stderrStream] {
            try stream?.handle.requireSameContext(as: parent, "the stream")
        }
        try withCMemory { memory throws(OrchError) in
            var opts = orch_proc_opts()
            orch_proc_opts_init(&opts, sizeOf(orch_proc_opts.self))
            opts.flags = options.leader ? ORCH_PROC_LEADER : 0
            opts.argv = try memory.strings(argv)
            opts.envp = try memory.strings(options.environment?.map { "\($0.key)=\($0.value)" })
            opts.cwd = try memory.string(options.workingDirectory)
            opts.stdin_fd = options.stdin ?? -1
            opts.stdout_fd = options.stdout ?? -1
            opts.stderr_fd = options.stderr ?? -1
            opts.stdin_stream = options.stdinStream?.handle.pointer
            opts.stdout_stream = options.stdoutStream?.handle.pointer
            opts.stderr_stream = options.stderrStream?.handle.pointer
            opts.event = onEvent
            opts.userdata = Callback.retained(watch)
            opts.destroy = releaseCallback
            try check { spawn(parent.pointer, &opts, &proc, $0) }
        }
        handle = Handle(proc!, parent.executor, orch_proc_unref)
        self.watch = watch
    }

    /// Inside the scope's PID namespace; nil while it has not started.
    public var pid: Int32? {
        let pid = orch_proc_pid(handle.pointer)
        return pid > 0 ? pid : nil
    }

    /// nil while it has not ended.
    public var reason: EndReason? {
        let reason = orch_proc_reason(handle.pointer)
        return reason == 0 ? nil : EndReason(reason)
    }

    /// nil while it runs, or when it could not be started.
    public var status: ExitStatus? { exitStatus(handle.pointer) }

    /// Sends a signal to the program, not to its descendants: to end those stop the scope. `ORCH_ESTATE`: it
    /// has ended.
    public func signal(_ signal: Int32) throws(OrchError) {
        try check { orch_proc_signal(handle.pointer, signal, $0) }
    }

    /// Waits until it has started or failed to. Errors as for ``exit``.
    public var started: Void {
        get async throws(OrchError) { try await watch.started.valueUnlessCancelled() }
    }

    /// Waits until it has ended. `ORCH_ESPAWN`: it could not be started (message and errno say why);
    /// `ORCH_EHELPER`: the helper died; `ORCH_ECANCELED`: the waiting task was cancelled, the program goes
    /// on.
    public var exit: ExitStatus {
        get async throws(OrchError) { try await watch.exit.valueUnlessCancelled() }
    }

    /// The same in a task that may be cancelled already.
    var exitWhateverHappens: ExitStatus {
        get async throws(OrchError) { try await watch.exit.value() }
    }
}

private final class Watch: Sendable {
    let started = Promise<Void>()
    let exit = Promise<ExitStatus>()

    deinit { fail(OrchError(.eclosed, "the context ended before the program's end was known")) }

    func fail(_ error: OrchError) {
        started.fail(error)
        exit.fail(error)
    }
}

private func exitStatus(_ proc: OpaquePointer) -> ExitStatus? {
    let signal = orch_proc_term_signal(proc)
    let code = orch_proc_exit_code(proc)
    return signal > 0 ? .signaled(signal) : code >= 0 ? .exited(code) : nil
}

private func onEvent(_ userdata: UnsafeMutableRawPointer?, _ proc: OpaquePointer?, _ event: UInt32) {
    let watch = Callback<Watch>.body(userdata)
    guard let proc else { return }
    switch event {
    case ORCH_PROC_STARTED:
        watch.started.succeed(())
    case ORCH_PROC_FAILED:
        watch.fail(orch_proc_error(proc).map(OrchError.init(copying:)) ?? OrchError(.espawn))
    case ORCH_PROC_EXITED:
        watch.started.succeed(())
        if let status = exitStatus(proc) { watch.exit.succeed(status) }
    default:
        break
    }
}
