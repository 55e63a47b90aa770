// SPDX-License-Identifier: Apache-2.0
import FactoryModel
import Foundation
import Observation
import Orch
import RunSetup
import Testing

// One after another: each looks at all processes below this one.
@Suite(.serialized, .timeLimit(.minutes(3)))
struct FactoryTests {
    @Test @MainActor func anIdeaBecomesAProduct() async throws {
        let stand = try Stand()
        let factory = Factory(stand.setup)
        let watcher = Watcher(factory)
        factory.idea = stand.idea
        factory.start(in: stand.state)
        #expect(factory.phase == .starting)

        await until { factory.needsAnswers }
        #expect(factory.phase == .running && factory.state == .clarify)
        #expect(factory.questions.map(\.id) == ["Q1", "Q2"])
        for question in factory.questions {
            #expect(!question.text.isEmpty && question.options.contains(question.recommended))
            #expect(question.answer == "" && question.answeredBy == nil)
        }
        #expect(try !stand.alive().isEmpty, "the helper of the run")
        factory.questions[0].answer = "No, as I said."
        factory.submitAnswers()
        await until { factory.questions.allSatisfy { $0.answeredBy != nil } }
        #expect(factory.questions.map(\.answer) == ["No, as I said.", factory.questions[1].recommended])

        await until { factory.tasks.contains { $0.id == "T1" && $0.state == .running } }
        #expect(factory.tasks.map(\.id) == ["T1", "T2", "T3", "T4"])
        #expect(factory.tasks.allSatisfy { !$0.title.isEmpty } && factory.tasks[3].state == .pending)
        await until { factory.phase == .idle }
        try checkDelivered(factory, stand)
        try checkOrder(watcher)
        try await stand.checkNothingLives()

        // A run that has ended says its end again, and the rest is read from its journal.
        let again = Factory(stand.setup)
        again.resume(stand.state)
        await until { again.phase == .idle }
        #expect(again.report == factory.report && again.idea == factory.idea && again.spent == factory.spent)
        #expect(
            again.tasks.map(\.state) == factory.tasks.map(\.state)
                && again.tasks.map(\.title) == factory.tasks.map(\.title))
        #expect(again.questions.map(\.answer) == factory.questions.map(\.answer))
        #expect(again.stages.map(\.state) == factory.stages.map(\.state))
    }

    @Test @MainActor func aStopInTheMiddleLeavesAReportAndNothingAlive() async throws {
        let stand = try Stand(delayMs: 200)
        let factory = Factory(stand.setup)
        factory.idea = stand.idea
        factory.start(in: stand.state)
        await until { factory.needsAnswers }
        factory.acceptRecommended()
        await until { factory.tasks.contains { $0.state == .running && !$0.lastLine.isEmpty } }
        #expect(try stand.alive().count > 1, "the helper and an attempt")
        factory.stop()
        #expect(factory.phase == .stopping)
        await until { factory.phase == .idle }
        #expect(factory.state == .aborted && factory.report?.state == .aborted && factory.problem == nil)
        #expect(factory.report?.reason == "stopped by the user" && factory.report?.product == nil)
        #expect(FileManager.default.fileExists(atPath: try #require(factory.report?.path)))
        let attempts = try #require(stand.report()["attempts"]?.array)
        #expect(attempts.contains { $0["end"]?.string == "STOPPED" })
        #expect(attempts.allSatisfy { $0["verdict"]?.string == "DEAD" })
        try await stand.checkNothingLives()
    }

    @Test @MainActor func aStopBeforeTheRunStandsIsKept() async throws {
        let stand = try Stand()
        let factory = Factory(stand.setup)
        factory.idea = stand.idea
        factory.start(in: stand.state)
        factory.stop()
        await until { factory.phase == .idle }
        #expect(factory.report?.state == .aborted && factory.problem == nil)
        try await stand.checkNothingLives()
    }

    @Test @MainActor func aRunThatWasLeftGoesOn() async throws {
        let stand = try Stand()
        let first = Factory(stand.setup)
        first.idea = stand.idea
        first.start(in: stand.state)
        await until { first.needsAnswers }
        first.acceptRecommended()
        await until { first.tasks.contains { $0.id == "T2" && $0.state == .running } }
        await first.leave()
        #expect(first.phase == .idle && first.report == nil && first.problem == nil)
        // The helper and its keeper may stay, without any load: a job whose program was not seen to end keeps
        // the context that nobody runs any more.
        try await stand.checkNothingLives(but: ["orch-reaper", "orch-keeper"])

        let second = Factory(stand.setup)
        second.resume(stand.state)
        await until { second.tasks.contains { $0.id == "T1" && $0.state == .merged } }
        #expect(second.idea == stand.idea && second.questions.count == 2 && second.tasks.count == 4)
        await until { second.phase == .idle }
        try checkDelivered(second, stand)
    }

    @Test @MainActor func errorsAreTexts() async throws {
        let stand = try Stand()
        var nobody = stand.setup
        nobody.baseURL = "http://127.0.0.1:9"
        let factory = Factory(nobody)
        factory.idea = stand.idea

        // Nobody answers at that address: the run ends by itself.
        factory.start(in: stand.state)
        await until { factory.phase == .idle }
        #expect(factory.state == .partial && factory.report?.path != nil)
        #expect(factory.problem?.contains("upstream_unreachable") == true, "\(factory.problem ?? "none")")

        // The agent leaves no answer.
        factory.setup = with(RunSetup()) { $0.worker = .command("exit 1") }
        factory.start(in: stand.state + "-1")
        await until { factory.phase == .idle }
        #expect(
            factory.state == .aborted && factory.stages[0].state == .sentBack
                && factory.stages[0].attempts == 3)
        #expect(factory.problem?.contains("clarify is BLOCKED") == true, "\(factory.problem ?? "none")")

        // The run can not be started; another one can, and the text is gone.
        let refused: [(RunSetup, String, String)] = [
            (stand.setup, stand.state, "EEXIST"), (stand.setup, stand.folder.path + "/no/parent", "state"),
            (with(stand.setup) { $0.baseURL = "gopher://127.0.0.1" }, stand.state + "-2", "EINVAL"),
            (with(stand.setup) { $0.worker = .command("/nowhere/agent") }, stand.state + "-3", "nowhere"),
        ]
        for (setup, folder, words) in refused {
            factory.setup = setup
            factory.start(in: folder)
            #expect(factory.problem == nil && factory.report == nil)
            await until { factory.phase == .idle }
            #expect(factory.problem?.contains(words) == true, "\(folder): \(factory.problem ?? "none")")
            #expect(factory.report == nil)
        }
        factory.resume(stand.folder.path)
        await until { factory.phase == .idle }
        #expect(factory.problem?.contains("there is no run in") == true, "\(factory.problem ?? "none")")
        try await stand.checkNothingLives()
    }
}

private func with(_ setup: RunSetup, _ change: (inout RunSetup) -> Void) -> RunSetup {
    var setup = setup
    change(&setup)
    return setup
}

@MainActor
private func checkDelivered(_ factory: Factory, _ stand: Stand) throws {
    let report = try #require(factory.report)
    #expect(report.state == .delivered && factory.state == .delivered && factory.problem == nil, "\(report)")
    #expect(FileManager.default.fileExists(atPath: try #require(report.path)))
    #expect(FileManager.default.fileExists(atPath: try #require(report.product) + "/shelf/__main__.py"))
    #expect(factory.overlays.isEmpty && factory.stages.allSatisfy { $0.state == .done })
    #expect(
        factory.tasks.map(\.id) == ["T1", "T2", "T3", "T4"]
            && factory.tasks.allSatisfy { $0.state == .merged })
    #expect(factory.tasks.allSatisfy { $0.attempts >= 1 && !$0.title.isEmpty })
    let spent = try Pipeline.status(of: stand.state)["spent"]
    #expect(factory.spent.requests > 0 && factory.spent.tokens > 0)
    #expect(Int64(factory.spent.requests) == spent?["requests"]?.integer)
    #expect(Int64(factory.spent.tokens) == spent?["tokens"]?.integer)
    #expect(try stand.announcements() == 1)
    #expect(try stand.report()["state"]?.string == "DELIVERED")
}

/// What change tracking tells of the tasks, as a table in a window would see it.
@MainActor
private final class Watcher {
    var seen: [String: [PlannedTask.State]] = [:]
    var lines: Set<String> = []

    init(_ factory: Factory) { watch(factory) }

    private func watch(_ factory: Factory) {
        withObservationTracking {
            for task in factory.tasks {
                if seen[task.id]?.last != task.state { seen[task.id, default: []].append(task.state) }
                if !task.lastLine.isEmpty { lines.insert(task.id) }
            }
        } onChange: { [weak self] in
            Task { @MainActor in self?.watch(factory) }
        }
    }
}

/// States that followed one another in one turn may be missing; none may come back.
@MainActor
private func checkOrder(_ watcher: Watcher) throws {
    let order: [PlannedTask.State] = [
        .pending, .ready, .leased, .running, .submitted, .verifying, .verified, .merged,
    ]
    for id in ["T1", "T2", "T3", "T4"] {
        let seen = try #require(watcher.seen[id])
        let places = try seen.map { try #require(order.firstIndex(of: $0), "\(id) was \($0)") }
        #expect(places == places.sorted() && seen.last == .merged, "\(id): \(seen)")
        #expect(seen.contains(.running) && seen.contains(.verifying), "\(id): \(seen)")
    }
    #expect(watcher.lines == ["T1", "T2", "T3", "T4"])
}
