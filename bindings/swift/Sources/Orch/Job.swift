// SPDX-License-Identifier: Apache-2.0
import COrch

public struct JobEventKind: OrchConstant {
    public let rawValue: UInt32
    public init(rawValue: UInt32) { self.rawValue = rawValue }

    /// What the agent says.
    public static let text = Self(ORCH_JOB_EVENT_TEXT)
    /// A tool call began; the text is the command.
    public static let tool = Self(ORCH_JOB_EVENT_TOOL)
    public static let result = Self(ORCH_JOB_EVENT_RESULT)
    /// Tolerated, not understood.
    public static let other = Self(ORCH_JOB_EVENT_OTHER)
}

public struct JobEvent: Hashable, Sendable {
    public let kind: JobEventKind
    public let text: String
}

public struct JobEndKind: OrchConstant {
    public let rawValue: UInt32
    public init(rawValue: UInt32) { self.rawValue = rawValue }

    /// The program ended by itself; its code proves nothing.
    public static let finished = Self(ORCH_JOB_FINISHED)
    /// No event for the stall time; killed.
    public static let stalled = Self(ORCH_JOB_STALLED)
    public static let timedOut = Self(ORCH_JOB_TIMED_OUT)
    /// Could not be started, or its event stream was broken.
    public static let failed = Self(ORCH_JOB_FAILED)
    /// Did not exit after its result; killed after the grace period.
    public static let hung = Self(ORCH_JOB_HUNG)
}

public struct JobEnd: Hashable, Sendable {
    public let kind: JobEndKind
    /// 0..255, 256 + signal, or -1.
    public let status: Int32
    /// For people.
    public let message: String
}

/// One attempt of an ``Executor``: what ``Executor/run(in:packet:timeoutMs:stallMs:)`` returns, and what a
/// host's function is given.
public actor Job {
    nonisolated let handle: Handle
    // nil: a host's function has it, and who runs it hears of its end.
    private nonisolated let watch: JobWatch?

    public nonisolated var unownedExecutor: UnownedSerialExecutor {
        handle.executor.asUnownedSerialExecutor()
    }

    init(_ handle: Handle, _ watch: JobWatch?) {
        self.handle = handle
        self.watch = watch
        events = watch?.events ?? AsyncStream { $0.finish() }
    }

    /// The whole prompt.
    public nonisolated var packet: String { string(orch_job_packet(handle.pointer)) }

    /// Where the work belongs. It is stopped by who runs the job. `ORCH_ESTATE`: the job is over.
    public var sandbox: Sandbox {
        get throws(OrchError) {
            guard let sandbox = orch_job_sandbox(handle.pointer) else {
                throw OrchError(.estate, "the job is over, and has no sandbox any more")
            }
            return Sandbox(
                standing: Handle(orch_sandbox_ref(sandbox), handle.executor, orch_sandbox_unref),
                borrowed: true)
        }
    }

    /// Host path of the workspace.
    public var workspace: String? { orch_job_workspace(handle.pointer).map { String(cString: $0) } }

    /// Ends a host function's job early, with a message. `ORCH_ESTATE`: it has ended.
    public func finish(_ status: Int32, _ message: String = "") throws(OrchError) {
        try withCMemory { memory throws(OrchError) in
            let message = try memory.string(message)
            try check { orch_job_finish(handle.pointer, status, message, $0) }
        }
    }

    /// Tokens that the executor itself claims to have used. The authority is the broker.
    public var claimedTokens: UInt64 { orch_job_claimed_tokens(handle.pointer) }

    /// All events of the job, for one reader; what it does not take is kept for it. Empty in a host's
    /// function.
    public nonisolated let events: AsyncStream<JobEvent>

    /// Waits for the end. `ORCH_ECANCELED`: the waiting task was cancelled; the job goes on, and stopping its
    /// sandbox ends it. `ORCH_ESTATE`: a host's function asks for the end of its own job.
    public var end: JobEnd {
        get async throws(OrchError) {
            guard let watch else { throw OrchError(.estate, "this job's end is told to who runs it") }
            return try await watch.end.valueUnlessCancelled()
        }
    }
}

final class JobWatch: Sendable {
    let events: AsyncStream<JobEvent>
    let eventSink: AsyncStream<JobEvent>.Continuation
    let end = Promise<JobEnd>()

    init() { (events, eventSink) = AsyncStream.makeStream() }

    deinit {
        eventSink.finish()
        end.fail(OrchError(.eclosed, "the context ended before the job did"))
    }
}

func onJobEvent(
    _ userdata: UnsafeMutableRawPointer?, _ job: OpaquePointer?, _ event: UInt32,
    _ text: UnsafePointer<CChar>?
) {
    Callback<JobWatch>.body(userdata).eventSink.yield(JobEvent(kind: JobEventKind(event), text: string(text)))
}

func onJobDone(
    _ userdata: UnsafeMutableRawPointer?, _ job: OpaquePointer?, _ end: UInt32, _ status: Int32,
    _ message: UnsafePointer<CChar>?
) {
    let watch = Callback<JobWatch>.body(userdata)
    watch.eventSink.finish()
    watch.end.succeed(JobEnd(kind: JobEndKind(end), status: status, message: string(message)))
}
