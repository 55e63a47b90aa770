// SPDX-License-Identifier: Apache-2.0
import Observation
import Orch
import RunSetup

/// One run, from the idea to the product, as a view can show it. The run itself lives on the thread of its
/// Orch context; everything here changes on the main actor alone, when an event of the run arrives. Nothing
/// polls.
@MainActor @Observable
public final class Factory {
    public enum Phase: Sendable { case idle, starting, running, stopping }

    /// What the next run needs besides the idea.
    public var setup: RunSetup
    public var idea = ""

    public private(set) var phase = Phase.idle
    /// nil: no run was started.
    public private(set) var state: RunState?
    public private(set) var overlays: Set<String> = []
    public private(set) var questions: [Question] = []
    public private(set) var stages: [Stage] = []
    public private(set) var tasks: [PlannedTask] = []
    /// By the attempts that have ended.
    public private(set) var spent = Spending()
    public private(set) var report: Report?
    /// What went wrong, and what to do, in words for the user; nil: nothing.
    public private(set) var problem: String?

    @ObservationIgnored private var pipeline: Pipeline?
    @ObservationIgnored private var leaving = false
    @ObservationIgnored private var run: Task<Void, Never>?

    public init(_ setup: RunSetup) { self.setup = setup }

    /// The run waits for ``submitAnswers()`` or ``acceptRecommended()``.
    public var needsAnswers: Bool {
        overlays.contains("NEEDS_HUMAN") && questions.contains { $0.answeredBy == nil }
    }

    // MARK: - what the user does

    /// Starts a run of the idea in a new folder.
    public func start(in folder: String) { begin(folder, idea: idea) }

    /// Goes on with the run that is in the folder, whatever ended its last instance.
    public func resume(_ folder: String) { begin(folder, idea: nil) }

    /// Gives the answers; a question without one takes what is recommended.
    public func submitAnswers() {
        let answers = questions.filter { $0.answeredBy == nil }.map { ($0.id, $0.answer) }
        ask { pipeline throws(OrchError) in
            try await pipeline.answer(Dictionary(uniqueKeysWithValues: answers))
        }
    }

    /// Takes what is recommended for every question that is not answered yet.
    public func acceptRecommended() {
        ask { pipeline throws(OrchError) in try await pipeline.acceptRecommended() }
    }

    /// Ends the run for good: what runs is killed, and the report has the certificates.
    public func stop() {
        guard phase == .starting || phase == .running else { return }
        phase = .stopping
        if pipeline != nil { askToStop() }
    }

    /// Leaves the run, as a crash would: what runs is killed, and ``resume(_:)`` goes on with it. Returns
    /// when its folder is free.
    public func leave() async {
        leaving = true
        pipeline = nil
        await run?.value
    }

    // MARK: - the run

    private func begin(_ folder: String, idea: String?) {
        guard phase == .idle else { return }
        forget()
        leaving = false
        phase = .starting
        run = Task { [setup] in
            do throws(OrchError) {
                try await follow(folder, idea, setup)
            } catch {
                problem = "\(error.message) [\(error.code)]"
            }
            pipeline = nil
            phase = .idle
        }
    }

    private func forget() {
        (state, report, problem) = (nil, nil, nil)
        (overlays, questions, tasks, spent) = ([], [], [], Spending())
        stages = ["clarify", "specify", "check", "plan", "deliver"].map(Stage.init)
    }

    private func follow(_ folder: String, _ idea: String?, _ setup: RunSetup) async throws(OrchError) {
        // What an earlier instance did is told by no event.
        if idea == nil { take(try await statusOfRest(folder)) }
        let context = try Context()
        let events = try await open(folder, idea, setup, context)
        for await event in events { await take(event) }
        pipeline = nil
        // Its folder is free when it is gone. The context's thread lets go of what was dropped between two of
        // its turns.
        for _ in 1...2 { await turn(of: context) }
    }

    /// Only ``pipeline`` keeps it: dropped there, it ends, and its events with it.
    private func open(
        _ folder: String, _ idea: String?, _ setup: RunSetup, _ context: Context
    ) async throws(OrchError) -> AsyncStream<PipelineEvent> {
        let pipeline = try await setup.open(folder, idea: idea, in: context)
        let events = pipeline.events
        if leaving { return events }
        self.pipeline = pipeline
        try await pipeline.start()
        if phase == .stopping { askToStop() } else { phase = .running }
        return events
    }

    private func askToStop() {
        ask { pipeline throws(OrchError) in try await pipeline.stop(stopReason) }
    }

    private func ask(_ request: @escaping @Sendable (Pipeline) async throws(OrchError) -> Void) {
        guard let pipeline else { return }
        Task {
            do throws(OrchError) { try await request(pipeline) } catch { problem = error.message }
        }
    }

    // MARK: - what the run says

    private func take(_ status: JSON) {
        idea = status["idea"]?.string ?? idea
        state = status["state"]?.string.flatMap(RunState.init(named:))
        overlays = Set(status["overlays"]?.array?.compactMap(\.string) ?? [])
        questions = status["questions"]?.array?.map(Question.init) ?? []
        for row in status["tasks"]?.array ?? [] { task(row["id"]?.string).update(row) }
        for row in status["stages"]?.array ?? [] {
            guard let stage = stage(row["stage"]?.string) else { continue }
            stage.attempts = row["attempts"]?.integer ?? 0
            stage.state = row["state"]?.string == "SEALED" ? .done : stage.attempts > 0 ? .judged : .pending
        }
        if status["delivery"]?.object != nil { stage("deliver")?.state = .done }
        takeSpending(status)
    }

    private func takeSpending(_ status: JSON) {
        func number(_ member: String) -> UInt64 { UInt64(clamping: status["spent"]?[member]?.integer ?? 0) }
        spent = Spending(
            requests: number("requests"), tokens: number("tokens"), microUsd: number("micro_usd"))
    }

    private func take(_ event: PipelineEvent) async {
        switch event.name {
        case "run": state = event["state"]?.string.flatMap(RunState.init(named:)) ?? state
        case "overlay": takeOverlay(event)
        case "question" where !questions.contains { $0.id == event["id"]?.string }:
            questions.append(Question(event.value))
        case "answer": takeAnswer(event)
        case "attempt": await takeAttempt(event)
        case "stage": await takeStage(event)
        case "task": task(event["task"]?.string).update(event.value)
        case "agent": takeLine(event)
        case "end": await takeEnd(event)
        default: break
        }
    }

    private func takeOverlay(_ event: PipelineEvent) {
        guard let name = event["overlay"]?.string else { return }
        if event["on"]?.bool == true { overlays.insert(name) } else { overlays.remove(name) }
    }

    private func takeAnswer(_ event: PipelineEvent) {
        guard let question = questions.first(where: { $0.id == event["id"]?.string }) else { return }
        question.answer = event["text"]?.string ?? ""
        question.answeredBy = event["by"]?.string
    }

    private func takeAttempt(_ event: PipelineEvent) async {
        if event["state"]?.string == "ENDED", let status = try? await pipeline?.status() {
            takeSpending(status)
        }
        guard let stage = stage(event["stage"]?.string) else { return }
        stage.attempts = event["attempt"]?.integer ?? stage.attempts
        stage.state = event["state"]?.string == "RUNNING" ? .running : .judged
    }

    private func takeStage(_ event: PipelineEvent) async {
        guard let stage = stage(event["stage"]?.string) else { return }
        switch event["state"]?.string {
        case "RUNNING": stage.state = .running
        case "SENT_BACK": stage.state = .sentBack
        case "SEALED", "DONE": stage.state = .done
        default: break
        }
        // No event names the tasks that wait for others.
        if stage.id == "plan", stage.state == .done, let status = try? await pipeline?.status() {
            for row in status["tasks"]?.array ?? [] {
                task(row["id"]?.string).title = row["title"]?.string ?? ""
            }
        }
    }

    private func takeLine(_ event: PipelineEvent) {
        let text = event["text"]?.string ?? ""
        guard let line = text.split(whereSeparator: \.isNewline).last.map(String.init) else { return }
        if let stage = stage(event["stage"]?.string) {
            stage.lastLine = line
        } else {
            task(event["task"]?.string).lastLine = line
        }
    }

    private func takeEnd(_ event: PipelineEvent) async {
        if let status = try? await pipeline?.status() { takeSpending(status) }
        func path(_ member: String) -> String? { event[member]?.string.flatMap { $0.isEmpty ? nil : $0 } }
        let reason = event["reason"]?.string ?? ""
        guard let state = event["state"]?.string.flatMap(RunState.init(named:)), state.isEnd else {
            // The run is as it was.
            problem = reason
            return
        }
        self.state = state
        if state != .delivered && reason != stopReason { problem = reason }
        report = Report(state: state, reason: reason, path: path("report"), product: path("product"))
    }

    private func stage(_ id: String?) -> Stage? { stages.first { $0.id == id } }

    private func task(_ id: String?) -> PlannedTask {
        let id = id ?? ""
        if let known = tasks.first(where: { $0.id == id }) { return known }
        tasks.append(PlannedTask(id))
        return tasks[tasks.count - 1]
    }
}

private let stopReason = "stopped by the user"

/// Off the main actor: it reads the journal.
private func statusOfRest(_ folder: String) async throws(OrchError) -> JSON {
    try Pipeline.status(of: folder)
}

/// Returns when the context's thread is done with what it does now.
private func turn(of context: isolated Context) {}

extension RunState {
    fileprivate init?(named name: String) {
        let all: [RunState] = [
            .intake, .clarify, .frozen, .planned, .executing, .accepting, .delivered, .partial, .aborted,
        ]
        guard let state = all.first(where: { $0.description == name }) else { return nil }
        self = state
    }
}
