// SPDX-License-Identifier: Apache-2.0
import COrch

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#elseif canImport(Darwin)
    import Darwin
#endif

/// What a program in a sandbox left, with the certificate of its end.
public struct SandboxResult: Sendable {
    public let status: ExitStatus
    public let stdout: [UInt8]
    public let stderr: [UInt8]
    /// Bytes over the limit were dropped.
    public let stdoutTruncated: Bool
    public let stderrTruncated: Bool
    public let death: Death
    /// Why the program ended.
    public let reason: EndReason

    /// As UTF-8; what is none is replaced.
    public var stdoutText: String { String(decoding: stdout, as: UTF8.self) }
    public var stderrText: String { String(decoding: stderr, as: UTF8.self) }
}

extension Sandbox {
    public struct RunOptions: Sendable {
        /// Then the scope is stopped, and the status is ``ExitStatus/timedOut``. 0: 60000.
        public var timeoutMs: Int64
        /// Bytes kept of each stream; the rest is read and dropped. 0: 1 MiB.
        public var outputLimit: UInt64
        /// For stdin; nil: /dev/null.
        public var input: [UInt8]?
        public var environment: [String: String]?
        public var workingDirectory: String?

        public init(timeoutMs: Int64 = 0, outputLimit: UInt64 = 0, input: [UInt8]? = nil) {
            self.timeoutMs = timeoutMs
            self.outputLimit = outputLimit
            self.input = input
        }
    }

    /// The short form: starts the sandbox if need be, runs argv as leader, captures its output, stops the
    /// scope and returns all of it with the certificate. The sandbox is over afterwards. Other calls into the
    /// context go on meanwhile.
    ///
    /// Cancelling the task stops the scope; when it is dead, `ORCH_ECANCELED` is thrown. Errors besides:
    /// those of the start, and `ORCH_ESPAWN`. A program that ran always gives a result, and so does one that
    /// did not come to it before the sandbox's time limit: ``ExitStatus/timedOut`` and ``EndReason/time``.
    public func run(_ argv: [String], _ options: RunOptions = RunOptions()) async throws(OrchError)
        -> SandboxResult
    {
        do {
            return try await runToItsEnd(argv, options)
        } catch {
            guard error.code == .ecanceled || error.code == .eclosed, !Task.isCancelled,
                let death = try? await scope.stop(), death.limit == .time
            else { throw error }
            return SandboxResult(
                status: .timedOut, stdout: [], stderr: [], stdoutTruncated: false, stderrTruncated: false,
                death: death, reason: .time)
        }
    }

    private func runToItsEnd(_ argv: [String], _ options: RunOptions) async throws(OrchError) -> SandboxResult {
        var defaults = orch_run_opts()
        orch_run_opts_init(&defaults, sizeOf(orch_run_opts.self))
        let limit = options.outputLimit == 0 ? defaults.output_limit : options.outputLimit
        let timeoutMs = options.timeoutMs == 0 ? defaults.timeout_ms : options.timeoutMs

        try await start()
        let loop = handle.executor.loop
        let out = try Capture(limit, loop)
        let err = try Capture(limit, loop)
        let feed = try options.input.map { input throws(OrchError) in try Feed(input, loop) }
        defer {
            out.close()
            err.close()
            feed?.close()
        }
        let scope = try scope
        let proc: Proc
        do {
            proc = try spawn(
                argv,
                Proc.Options(
                    environment: options.environment, workingDirectory: options.workingDirectory,
                    stdin: feed?.theirs, stdout: out.theirs, stderr: err.theirs, leader: true))
        } catch {
            _ = try? await scope.stop()
            throw error
        }
        // Dup'ed by the spawn: without our copies the pipes end with the load.
        out.closeTheirs()
        err.closeTheirs()
        feed?.closeTheirs()

        let timedOut = Promise<Void>()
        let timer = Task {
            try await Task.sleep(for: .milliseconds(timeoutMs))
            timedOut.succeed(())
            try await scope.stop()
        }
        let ended = await withTaskCancellationHandler {
            await Result { () async throws(OrchError) in try await proc.exitWhateverHappens }
        } onCancel: {
            Task { try await scope.stop() }
        }
        timer.cancel()
        let death = try await scope.stop()
        // Detached descendants wrote up to now, and nobody writes any more.
        out.drain()
        err.drain()
        if Task.isCancelled {
            throw OrchError(.ecanceled, "the task was cancelled; the sandbox is \(death.verdictName)")
        }
        let status = try ended.get()
        return SandboxResult(
            status: timedOut.outcome == nil ? status : .timedOut, stdout: out.kept, stderr: err.kept,
            stdoutTruncated: out.truncated, stderrTruncated: err.truncated, death: death,
            reason: await proc.reason ?? .lost)
    }
}

extension Result where Failure == OrchError, Success: Sendable {
    fileprivate init(
        isolation: isolated (any Actor)? = #isolation, _ body: () async throws(OrchError) -> Success
    ) async {
        do { self = .success(try await body()) } catch { self = .failure(error) }
    }
}

/// A pipe with an end for us, watched by the context's thread, and one for a program. Of that thread alone.
private class Pipe {
    let loop: Loop
    private(set) var ours: Int32
    private(set) var theirs: Int32

    init(_ loop: Loop, weWrite: Bool) throws(OrchError) {
        self.loop = loop
        var ends: [Int32] = [-1, -1]
        #if canImport(Darwin)
            let failed = pipe(&ends) < 0
            for end in ends where !failed { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
        #else
            let failed = pipe2(&ends, O_CLOEXEC) < 0
        #endif
        if failed { throw OrchError(.esys, "no pipe can be made", errno: errno, step: "output") }
        ours = weWrite ? ends[1] : ends[0]
        theirs = weWrite ? ends[0] : ends[1]
        // Only our end: the two are separate open file descriptions.
        _ = fcntl(ours, F_SETFL, O_NONBLOCK)
    }

    func closeTheirs() {
        if theirs >= 0 { _ = fdClose(theirs) }
        theirs = -1
    }

    func closeOurs() {
        guard ours >= 0 else { return }
        loop.unwatch(ours)
        _ = fdClose(ours)
        ours = -1
    }

    func close() {
        closeOurs()
        closeTheirs()
    }
}

// Inside Pipe the name is taken.
private func fdClose(_ fd: Int32) -> Int32 { close(fd) }

private final class Capture: Pipe {
    private let limit: UInt64
    private(set) var kept: [UInt8] = []
    private(set) var truncated = false

    init(_ limit: UInt64, _ loop: Loop) throws(OrchError) {
        self.limit = limit
        try super.init(loop, weWrite: false)
        // One read a turn: a program that never stops writing must not hold the thread.
        loop.watch(ours, POLLIN) { [unowned self] in _ = readSome() }
    }

    /// How much came; nil: nothing more, for now or for good.
    private func readSome() -> Int? {
        var chunk = [UInt8](repeating: 0, count: 65536)
        let length = read(ours, &chunk, chunk.count)
        if length < 0 && errno == EINTR { return 0 }
        if length < 0 && errno == EAGAIN { return nil }
        guard length > 0 else {
            closeOurs()
            return nil
        }
        let room = Int(clamping: limit - UInt64(kept.count))
        kept += chunk[..<min(length, room)]
        if length > room { truncated = true }
        return length
    }

    /// After the last process is dead a pipe holds at most what its buffer does.
    func drain() {
        var length = 0
        while ours >= 0, length < 4 << 20, let more = readSome() { length += more }
        closeOurs()
    }
}

private final class Feed: Pipe {
    private var left: ArraySlice<UInt8>

    init(_ input: [UInt8], _ loop: Loop) throws(OrchError) {
        left = input[...]
        try super.init(loop, weWrite: true)
        loop.watch(ours, POLLOUT) { [unowned self] in writeSome() }
    }

    private func writeSome() {
        // The context's thread blocks SIGPIPE: a program that does not read gives EPIPE here.
        let length = left.withUnsafeBytes { write(ours, $0.baseAddress, min($0.count, 65536)) }
        if length < 0 && (errno == EINTR || errno == EAGAIN) { return }
        if length > 0 { left = left.dropFirst(length) }
        if length < 0 || left.isEmpty { closeOurs() }
    }
}
