// SPDX-License-Identifier: Apache-2.0
import COrch

public struct Role: OrchConstant {
    public let rawValue: UInt32
    public init(rawValue: UInt32) { self.rawValue = rawValue }

    public static let planner = Self(ORCH_ROLE_PLANNER)
    public static let checker = Self(ORCH_ROLE_CHECKER)
    public static let executor = Self(ORCH_ROLE_EXECUTOR)
    public static let reviewer = Self(ORCH_ROLE_REVIEWER)
}

public struct RunState: OrchConstant, CustomStringConvertible {
    public let rawValue: UInt32
    public init(rawValue: UInt32) { self.rawValue = rawValue }

    public static let intake = Self(ORCH_RUN_INTAKE)
    public static let clarify = Self(ORCH_RUN_CLARIFY)
    public static let frozen = Self(ORCH_RUN_FROZEN)
    public static let planned = Self(ORCH_RUN_PLANNED)
    public static let executing = Self(ORCH_RUN_EXECUTING)
    public static let accepting = Self(ORCH_RUN_ACCEPTING)
    public static let delivered = Self(ORCH_RUN_DELIVERED)
    public static let partial = Self(ORCH_RUN_PARTIAL)
    public static let aborted = Self(ORCH_RUN_ABORTED)

    public var isEnd: Bool { [.delivered, .partial, .aborted].contains(self) }

    /// "INTAKE", "CLARIFY", ...
    public var description: String { string(orch_run_state_name(rawValue)) }
}

/// What holds a run up, beside its state.
public struct Overlay: OptionSet, Hashable, Sendable {
    public let rawValue: UInt32
    public init(rawValue: UInt32) { self.rawValue = rawValue }

    public static let quotaWait = Self(rawValue: ORCH_OVERLAY_QUOTA_WAIT)
    public static let budgetStop = Self(rawValue: ORCH_OVERLAY_BUDGET_STOP)
    public static let needsHuman = Self(rawValue: ORCH_OVERLAY_NEEDS_HUMAN)
    public static let recovering = Self(rawValue: ORCH_OVERLAY_RECOVERING)
}

/// From an idea to a verified product. Every transition is a record of the run's journal, from which a new
/// instance resumes; nothing that an executor prints can make a task verified.
///
/// Dropping the last reference kills what runs; the run can be resumed from its state folder.
public actor Pipeline {
    public struct Options: Sendable {
        /// Made if missing (its parent must exist), mode 0700.
        public var stateDir: String
        /// Journal anchor, outside the state folder; nil: none.
        public var anchorPath: String?
        /// For a new run.
        public var idea: String?
        /// Existing git repository, never touched; nil: a new product.
        public var repoDir: String?
        /// Revision in it; nil: HEAD.
        public var baseRev: String?
        /// nil: build tree or installed data folder.
        public var schemaDir: String?
        /// Tasks at once; 0: 2.
        public var jobs: UInt32 = 0
        /// Per task, and per answer of a role; 0: 3.
        public var maxAttempts: UInt32 = 0
        /// Of the whole run.
        public var budget = Spending()
        /// Wall time of the run; 0: no limit.
        public var maxSeconds: UInt64 = 0
        /// After it the recommended answers are taken. -1: wait for ever; 0: at once.
        public var answerTimeoutMs: Int64 = 0
        /// For the report: what did the work.
        public var description: String?
        /// No reviewer role.
        public var noReview = false
        /// Called on the context's thread right after each record of the journal became durable. It must not
        /// call the library.
        public var onRecord: (@Sendable (UInt64) -> Void)?

        fileprivate let resume: Bool

        /// A new run.
        public init(stateDir: String, idea: String) {
            self.stateDir = stateDir
            self.idea = idea
            resume = false
        }

        /// The run that is in the state folder: its idea, options and answers are in the journal.
        public init(resuming stateDir: String) {
            self.stateDir = stateDir
            resume = true
        }
    }

    nonisolated let handle: Handle
    private nonisolated let hub = Hub<PipelineEvent>()

    public nonisolated var unownedExecutor: UnownedSerialExecutor {
        handle.executor.asUnownedSerialExecutor()
    }

    /// Opens the state folder and its journal; starts nothing. `ORCH_EEXIST`: the folder holds a run;
    /// `ORCH_ENOENT`: nothing to resume, or no repository; `ORCH_EINVAL`; errors of ``Journal``.
    public init(_ context: Context, _ options: Options) async throws(OrchError) {
        let hub = hub
        handle = try await context.make(orch_pipeline_unref) { (ctx, made) throws(OrchError) in
            try withCMemory { memory throws(OrchError) in
                var opts = orch_pipeline_opts()
                orch_pipeline_opts_init(&opts, sizeOf(orch_pipeline_opts.self))
                opts.flags =
                    (options.resume ? ORCH_PIPELINE_RESUME : 0)
                    | (options.noReview ? ORCH_PIPELINE_NO_REVIEW : 0)
                opts.state_dir = try memory.string(options.stateDir)
                opts.anchor_path = try memory.string(options.anchorPath)
                opts.idea = try memory.string(options.idea)
                opts.repo_dir = try memory.string(options.repoDir)
                opts.base_rev = try memory.string(options.baseRev)
                opts.schema_dir = try memory.string(options.schemaDir)
                opts.jobs = options.jobs
                opts.max_attempts = options.maxAttempts
                opts.max_requests = options.budget.requests
                opts.max_tokens = options.budget.tokens
                opts.max_micro_usd = options.budget.microUsd
                opts.max_seconds = options.maxSeconds
                opts.answer_timeout_ms = options.answerTimeoutMs
                opts.description = try memory.string(options.description)
                if let onRecord = options.onRecord {
                    opts.on_record = tellRecord
                    opts.on_record_userdata = Callback.retained(onRecord)
                    opts.on_record_destroy = releaseCallback
                }
                try check { orch_pipeline_new(ctx, &opts, &made, $0) }
            }
            try check {
                orch_pipeline_on_event(
                    made, onPipelineEvent, Callback.retained(EventSource(hub)), releaseCallback, $0)
            }
        }
    }

    /// Of the run: set its upstreams before the start.
    public var broker: Broker {
        Broker(
            Handle(orch_broker_ref(orch_pipeline_broker(handle.pointer)), handle.executor, orch_broker_unref))
    }

    /// Of the run.
    public var journal: Journal {
        Journal(
            Handle(
                orch_journal_ref(orch_pipeline_journal(handle.pointer)), handle.executor, orch_journal_unref))
    }

    /// Who does a role; nil: all roles that have none of their own. `ORCH_ESTATE`: it is started.
    public func setExecutor(_ executor: Executor, for role: Role? = nil) throws(OrchError) {
        try handle.requireSameContext(as: executor.handle, "the executor")
        try check {
            orch_pipeline_set_executor(handle.pointer, role?.rawValue ?? 0, executor.handle.pointer, $0)
        }
    }

    /// Allows tasks whose plan asks for it an operation of that kind. Key prefix and uses are set by the
    /// pipeline.
    public func allow(_ grant: Grant) throws(OrchError) {
        try withCMemory { memory throws(OrchError) in
            var opts = orch_grant_opts()
            try grant.fill(&opts, memory)
            try check { orch_pipeline_allow(handle.pointer, &opts, $0) }
        }
    }

    /// Each thing that happens from now on. Each reader asks for its own stream; it ends after the event
    /// "end". Nothing is dropped: what a reader does not take is kept for it.
    public nonisolated var events: AsyncStream<PipelineEvent> { hub.stream() }

    /// Starts or resumes. First it probes what is enforced on this host: that takes seconds and holds the
    /// context's thread.
    ///
    /// `ORCH_ESTATE`: started already, or a role has no executor; `ORCH_EUNENFORCEABLE`; `ORCH_ECORRUPT`: a
    /// sealed document was changed; errors of ``Journal``.
    public func start() throws(OrchError) { try check { orch_pipeline_start(handle.pointer, $0) } }

    /// Starts if need be and waits for the end: `delivered`, `partial` or `aborted`.
    ///
    /// `ORCH_ENEEDHUMAN`: it waits for answers that nobody will give; `ORCH_ENOSPC`, `ORCH_EPOISONED` and
    /// others: this instance can not go on, the run can be resumed. `ORCH_ECANCELED`: the waiting task was
    /// cancelled; the run goes on, call ``stop(_:)`` to abort it, or drop the pipeline to resume it later.
    public func run() async throws(OrchError) -> RunState {
        let (looks, look) = AsyncStream<Void>.makeStream(bufferingPolicy: .bufferingNewest(1))
        // Nearly always an event says that there is something to see. A run that resumes where it waited for
        // a person has said so before: for that, look from time to time.
        let events = self.events
        let watcher = Task {
            for await event in events where event.name == "end" || event.name == "overlay" { look.yield() }
            look.yield()
        }
        let ticker = Task {
            while !Task.isCancelled {
                look.yield()
                try await Task.sleep(for: .seconds(1))
            }
        }
        defer {
            watcher.cancel()
            ticker.cancel()
        }
        for await _ in looks {
            do throws(OrchError) {
                var state: UInt32 = 0
                // At most one turn of the loop.
                try check { orch_pipeline_run(handle.pointer, 0, &state, $0) }
                return RunState(state)
            } catch where error.code == .etimedout {}
        }
        throw OrchError(.ecanceled, "the task that waited for the run was cancelled")
    }

    /// Answers of the user by question; "" or a missing one takes the recommendation. Before the questions
    /// are asked they are kept. `ORCH_ENOENT`: no such question; `ORCH_ESTATE`: too late.
    public func answer(_ answers: [String: String]) throws(OrchError) {
        try answer(json: JSON.object(["answers": .object(answers.mapValues(JSON.string))]).text)
    }

    /// The same as JSON `{"answers":{ID:TEXT,...}}`. `ORCH_EPARSE`: line and reason.
    public func answer(json: String) throws(OrchError) {
        try withCMemory { memory throws(OrchError) in
            let text = try memory.string(json)
            try check { orch_pipeline_answer(handle.pointer, text, json.utf8.count, $0) }
        }
    }

    /// Takes the recommendation for each question that is still open.
    public func acceptRecommended() throws(OrchError) {
        try check { orch_pipeline_accept_recommended(handle.pointer, $0) }
    }

    /// Kills the running attempts (certificates in the report); the run ends `aborted` after its report is
    /// written.
    public func stop(_ reason: String) throws(OrchError) {
        try withCMemory { memory throws(OrchError) in
            let reason = try memory.string(reason)
            try check { orch_pipeline_stop(handle.pointer, reason, $0) }
        }
    }

    public var state: RunState { RunState(orch_pipeline_state(handle.pointer)) }
    public var overlays: Overlay { Overlay(rawValue: orch_pipeline_overlays(handle.pointer)) }

    /// The living state: stages, tasks, spending, questions.
    public func status() throws(OrchError) -> JSON {
        try takeJSON { orch_pipeline_status(handle.pointer, $0, $1) }
    }

    /// The same from the journal of a run that no instance has in hand. It reads files on the caller's
    /// thread. `ORCH_ELOCKED`: it runs; `ORCH_ENOENT`.
    public static func status(of stateDir: String) throws(OrchError) -> JSON {
        try withCMemory { memory throws(OrchError) in
            let stateDir = try memory.string(stateDir)
            return try takeJSON { orch_pipeline_status_of(stateDir, $0, $1) }
        }
    }

    /// Of report.html; nil until there is one.
    public var reportPath: String? { path(orch_pipeline_report_path(handle.pointer)) }
    /// Of the product; nil until there is one.
    public var productPath: String? { path(orch_pipeline_product_path(handle.pointer)) }

    private func path(_ text: UnsafePointer<CChar>?) -> String? {
        let path = string(text)
        return path.isEmpty ? nil : path
    }
}

private final class EventSource: Sendable {
    let hub: Hub<PipelineEvent>
    init(_ hub: Hub<PipelineEvent>) { self.hub = hub }
    deinit { hub.finish() }
}

private func onPipelineEvent(_ userdata: UnsafeMutableRawPointer?, _ json: UnsafePointer<CChar>?) {
    let hub = Callback<EventSource>.body(userdata).hub
    guard let event = try? PipelineEvent(line: string(json)) else { return }
    hub.send(event)
    if event.name == "end" { hub.finish() }
}

private func takeJSON(
    _ call: (UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>, UnsafeMutablePointer<OpaquePointer?>) ->
        Int32
) throws(OrchError) -> JSON {
    var text: UnsafeMutablePointer<CChar>?
    try check { call(&text, $0) }
    defer { orch_string_free(text) }
    return try JSON(parsing: string(text))
}
