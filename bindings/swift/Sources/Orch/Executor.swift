// SPDX-License-Identifier: Apache-2.0
import COrch

public struct ExecutorKind: OrchConstant, CustomStringConvertible {
    public let rawValue: UInt32
    public init(rawValue: UInt32) { self.rawValue = rawValue }

    public static let mini = Self(ORCH_EXECUTOR_MINI)
    public static let claude = Self(ORCH_EXECUTOR_CLAUDE)
    public static let codex = Self(ORCH_EXECUTOR_CODEX)
    public static let command = Self(ORCH_EXECUTOR_COMMAND)
    public static let callback = Self(ORCH_EXECUTOR_CALLBACK)

    /// "mini", "claude", "codex", "command", "callback".
    public var description: String { string(orch_executor_kind_name(rawValue)) }
}

/// Which protocol the built-in executor speaks.
public struct ModelApi: OrchConstant {
    public let rawValue: UInt32
    public init(rawValue: UInt32) { self.rawValue = rawValue }

    /// Messages.
    public static let anthropic = Self(ORCH_API_ANTHROPIC)
    /// Responses.
    public static let openai = Self(ORCH_API_OPENAI)
}

/// What does the work of a role: it gets a packet (text) and a sandbox with a workspace, and leaves its
/// answer as files in the workspace. Nothing that it prints and no exit code proves anything.
public actor Executor {
    /// One of the kinds, with what that kind needs.
    public enum Program: Sendable {
        /// Built in: one tool, a shell. `path` nil: beside the library.
        case mini(api: ModelApi = .anthropic, model: String? = nil, path: String? = nil)
        /// Claude Code, at an absolute host path.
        case claude(path: String, model: String? = nil)
        /// Codex CLI, at an absolute host path.
        case codex(path: String, model: String? = nil)
        /// Any program: packet on stdin, workspace as working directory.
        case command([String])
        /// A function of the host. It runs in a task of its own and may take its time; what it returns is the
        /// job's status. What it throws becomes the job's message, with the status -1. When the job is
        /// stopped for its time, programs that the function awaits in the job's sandbox end, and its task is
        /// not cancelled.
        case callback(@Sendable (Job) async throws -> Int32)
    }

    nonisolated let handle: Handle

    public nonisolated var unownedExecutor: UnownedSerialExecutor {
        handle.executor.asUnownedSerialExecutor()
    }

    /// `ORCH_EINVAL`; `ORCH_ENOENT`: the program is not there (the message says where it was sought).
    public init(_ context: Context, _ program: Program) async throws(OrchError) {
        let executor = context.executor
        handle = try await context.make(orch_executor_unref) { (ctx, made) throws(OrchError) in
            try withCMemory { memory throws(OrchError) in
                var opts = orch_executor_opts()
                orch_executor_opts_init(&opts, sizeOf(orch_executor_opts.self))
                switch program {
                case .mini(let api, let model, let path):
                    opts.kind = ORCH_EXECUTOR_MINI
                    opts.api = api.rawValue
                    opts.model = try memory.string(model)
                    opts.program = try memory.string(path)
                case .claude(let path, let model):
                    opts.kind = ORCH_EXECUTOR_CLAUDE
                    opts.model = try memory.string(model)
                    opts.program = try memory.string(path)
                case .codex(let path, let model):
                    opts.kind = ORCH_EXECUTOR_CODEX
                    opts.model = try memory.string(model)
                    opts.program = try memory.string(path)
                case .command(let argv):
                    opts.kind = ORCH_EXECUTOR_COMMAND
                    opts.argv = try memory.strings(argv)
                case .callback(let work):
                    opts.kind = ORCH_EXECUTOR_CALLBACK
                    opts.job = onJob
                    opts.userdata = Callback.retained(HostExecutor(work, executor.loop))
                    opts.destroy = releaseCallback
                }
                try check { orch_executor_new(ctx, &opts, &made, $0) }
            }
        }
    }

    public nonisolated var kind: ExecutorKind { ExecutorKind(orch_executor_kind(handle.pointer)) }

    /// "ai.anthropic", "ai.openai" or nil: the grant that it needs.
    public nonisolated var operation: String? {
        orch_executor_operation(handle.pointer).map { String(cString: $0) }
    }

    /// Shows the program's files in a sandbox that is not started yet. ``run(in:packet:timeoutMs:stallMs:)``
    /// needs it.
    public func prepare(_ sandbox: Sandbox) throws(OrchError) {
        try handle.requireSameContext(as: sandbox.handle, "the sandbox")
        try check { orch_executor_prepare(handle.pointer, sandbox.handle.pointer, $0) }
    }

    /// Starts one attempt in the started sandbox, which is not stopped by it: that is yours, and gives the
    /// certificate. `ORCH_ESTATE`: the sandbox is not started.
    /// - Parameters:
    ///   - packet: the whole prompt.
    ///   - timeoutMs: 0: 1800000.
    ///   - stallMs: without an event; 0: 300000.
    public func run(
        in sandbox: Sandbox, packet: String, timeoutMs: UInt32 = 0, stallMs: UInt32 = 0
    ) throws(OrchError) -> Job {
        try handle.requireSameContext(as: sandbox.handle, "the sandbox")
        return try withCMemory { memory throws(OrchError) in
            let watch = JobWatch()
            var opts = orch_job_opts()
            orch_job_opts_init(&opts, sizeOf(orch_job_opts.self))
            opts.packet = try memory.string(packet)
            opts.timeout_ms = timeoutMs
            opts.stall_ms = stallMs
            opts.event = onJobEvent
            opts.done = onJobDone
            opts.userdata = Callback.retained(watch)
            opts.destroy = releaseCallback
            var job: OpaquePointer?
            try check { orch_executor_run(handle.pointer, sandbox.handle.pointer, &opts, &job, $0) }
            return Job(Handle(job!, handle.executor, orch_job_unref), watch)
        }
    }
}

private final class HostExecutor: Sendable {
    let work: @Sendable (Job) async throws -> Int32
    let loop: Loop

    init(_ work: @escaping @Sendable (Job) async throws -> Int32, _ loop: Loop) {
        self.work = work
        self.loop = loop
    }
}

private func onJob(_ userdata: UnsafeMutableRawPointer?, _ job: OpaquePointer?) {
    let host = Callback<HostExecutor>.body(userdata)
    // Nobody can run a job in a context that no handle keeps.
    guard let executor = host.loop.executor else { return }
    let job = Job(Handle(orch_job_ref(job), executor, orch_job_unref), nil)
    Task {
        // Finished explicitly, also after a failure: whoever runs the job has a reference too, so that
        // dropping ours would tell nobody. It may have ended meanwhile.
        do {
            let status = try await host.work(job)
            try? await job.finish(status)
        } catch {
            try? await job.finish(-1, "\(error)")
        }
    }
}
