// SPDX-License-Identifier: Apache-2.0
import Foundation
import Orch
import Testing

@Suite(.timeLimit(.minutes(2))) struct JournalTests {
    @Test func anActionGoesThroughItsStates() async throws {
        let folder = try Folder()
        let counter = Counter()
        let journal = try await Journal(
            try folder.file("journal.db"), .init(onRecord: { _ in counter.count() }))
        let intent = Journal.Intent(kind: "post", key: "k1", request: Array("body".utf8))
        let (begin, action) = try await journal.begin(intent)
        #expect(begin == .fresh)
        #expect(await action.state == .intent)
        try await action.dispatch()
        try await action.observe(Array("done".utf8))
        try await action.confirm()
        let record = await action.record
        #expect(record.state == .confirmed)
        #expect(record.state.description == "CONFIRMED")
        #expect(record.request == Array("body".utf8))
        #expect(record.result == Array("done".utf8))
        #expect(record.policy == .neverRepeat)
        #expect(record.attempt == 1)
        #expect(record.generation == (await journal.generation))

        let (again, replayed) = try await journal.begin(intent)
        #expect(again == .replay)
        #expect(await replayed.record.result == Array("done".utf8))
        let conflict = await #expect(throws: OrchError.self) {
            try await journal.begin(.init(kind: "post", key: "k1", request: Array("other".utf8)))
        }
        #expect(conflict?.code == .econflict)
        let state = await #expect(throws: OrchError.self) { try await action.dispatch() }
        #expect(state?.code == .estate)
        #expect(try await journal.record(kind: "note", key: "n1"))
        #expect(try await !journal.record(kind: "note", key: "n1"))
        #expect(try await journal.find("nothing") == nil)
        #expect(try await journal.find("n1")?.kind == "note")
        #expect(try await journal.verify() == (await journal.sequence))
        #expect(counter.value > 4)
    }

    @Test func sideStatesKeepTheirReasons() async throws {
        let folder = try Folder()
        let journal = try await Journal(try folder.file("journal.db"))
        func action(_ key: String) async throws -> Action {
            let (_, action) = try await journal.begin(.init(kind: "post", key: key))
            try await action.dispatch()
            return action
        }
        let reason = Array("because".utf8)
        let unknown = try await action("unknown")
        try await unknown.unknown(reason)
        try await unknown.handOver(reason)
        #expect(await unknown.record.state == .handedOver)
        let failed = try await action("failed")
        try await failed.fail(reason)
        #expect(await failed.record.result == reason)
        let abandoned = try await action("abandoned")
        try await abandoned.abandon(reason)
        let resolved = try await action("resolved")
        try await resolved.resolve(.applied(result: reason))
        let states = try await journal.actions("post").asyncMap { await $0.state }
        #expect(states == [.handedOver, .failed, .abandoned, .confirmed])
    }

    @Test func recoveryAsksBeforeItDecides() async throws {
        let folder = try Folder()
        let path = try folder.file("journal.db")
        do {
            let journal = try await Journal(path)
            for key in ["applied", "not-applied", "nobody-knows", "throws"] {
                let (_, action) = try await journal.begin(.init(kind: "post", key: key))
                try await action.dispatch()
            }
        }
        let asked = Asked()
        let journal = try await reopened(path)
        struct NoAnswer: Error {}
        let recovery = try await journal.recover { record in
            asked.keys.withLock { $0.append(record.key) }
            switch record.key {
            case "applied": return .applied(result: Array("seen".utf8))
            case "not-applied": return .notApplied
            case "throws": throw NoAnswer()
            default: return .unknown
            }
        }
        #expect(asked.keys.withLock { $0 } == ["applied", "not-applied", "nobody-knows", "throws"])
        #expect(recovery.probeErrors.count == 1 && recovery.probeErrors[0] is NoAnswer)
        let states = await recovery.rows.asyncMap { await $0.action.state }
        #expect(states == [.confirmed, .failed, .handedOver, .handedOver])
        #expect(recovery.rows.map(\.stateBefore) == [.dispatched, .dispatched, .dispatched, .dispatched])
        #expect(recovery.rows.map(\.probe) == [.applied, .notApplied, .unknown, .unknown])
        #expect(try await journal.find("applied")?.record.result == Array("seen".utf8))
        #expect(recovery.text.contains("not-applied"))
        // What is decided is not asked again; who waits for a person goes on waiting.
        let again = try await journal.recover { _ in .applied() }
        #expect(again.rows.map(\.stateBefore) == [.handedOver, .handedOver])
        #expect(again.rows.map(\.probe) == [nil, nil])
    }

    @Test func decidingOtherwiseAndTellingAPerson() async throws {
        let folder = try Folder()
        let path = try folder.file("journal.db")
        do {
            let journal = try await Journal(path)
            for key in ["nobody-knows", "no-evidence", "not-applied"] {
                let (_, action) = try await journal.begin(.init(kind: "post", key: key))
                try await action.dispatch()
            }
        }
        let asked = Asked()
        let told = Asked()
        let journal = try await reopened(path)
        let recovery = try await journal.recover(
            "post",
            probe: { $0.key == "not-applied" ? .notApplied : .unknown },
            decide: { record, outcome, proposed in
                let said = "\(record.key) \(outcome?.rawValue ?? 0) \(proposed.rawValue)"
                asked.keys.withLock { $0.append(said) }
                switch record.key {
                case "nobody-knows": return .verify
                case "no-evidence": return .goOn
                default: return .abandon
                }
            },
            handOver: { record in told.keys.withLock { $0.append(record.key) } })
        #expect(asked.keys.withLock { $0 } == ["nobody-knows 4 4", "no-evidence 4 4", "not-applied 2 3"])
        // Nobody has evidence that the second one happened: as proposed.
        let states = await recovery.rows.asyncMap { await $0.action.state }
        #expect(states == [.unknown, .handedOver, .abandoned])
        #expect(told.keys.withLock { $0 } == ["no-evidence"])
        // A decision that says nothing is the proposal; who waits is told of again.
        told.keys.withLock { $0 = [] }
        try await journal.recover(
            decide: { _, _, _ in nil }, handOver: { record in told.keys.withLock { $0.append(record.key) } })
        #expect(try await journal.find("nobody-knows")?.state == .handedOver)
        #expect(told.keys.withLock { $0.sorted() } == ["no-evidence", "nobody-knows"])
    }

    @Test func whatAPersonFoundOut() async throws {
        let folder = try Folder()
        let journal = try await Journal(try folder.file("journal.db"))
        func waiting(_ key: String) async throws -> Action {
            let (_, action) = try await journal.begin(.init(kind: "post", key: key))
            try await action.dispatch()
            try await action.handOver()
            return action
        }
        let applied = try await waiting("a")
        #expect(await applied.record.decided == nil)
        try await applied.decide(.applied, by: "Ada", note: Array("it is there".utf8))
        let notApplied = try await waiting("b")
        try await notApplied.decide(.notApplied, by: "Grace")
        let givenUp = try await waiting("c")
        try await givenUp.decide(.abandon, by: "Ada")
        #expect(try await journal.actions().asyncMap { await $0.state } == [.confirmed, .failed, .abandoned])
        let record = try #require(try await journal.find("a")?.record)
        #expect(record.result == Array("it is there".utf8))
        #expect(record.decided?.decision == .applied && record.decided?.by == "Ada")
        #expect((record.decided?.atMs ?? 0) >= record.createdAtMs)
        #expect(try await journal.begin(.init(kind: "post", key: "b")).begin == .fresh)
        let state = await #expect(throws: OrchError.self) { try await applied.decide(.abandon, by: "Ada") }
        #expect(state?.code == .estate)
    }

    @Test func manyAtOnceAreAllThereInTheirOrder() async throws {
        let folder = try Folder()
        let context = try Context()
        let journal = try await Journal(try folder.file("journal.db"), on: context)
        let fresh = try await withThrowingTaskGroup(of: Bool.self) { group in
            for number in 0..<200 {
                group.addTask { try await journal.record(kind: "note", key: "n\(number)") }
            }
            return try await group.reduce(into: 0) { $0 += $1 ? 1 : 0 }
        }
        #expect(fresh == 200)
        #expect(try await journal.actions().count == 200)
        // Two moves of one object at the same time: the first one counts.
        let (_, action) = try await journal.begin(.init(kind: "post", key: "k"))
        async let first: Void = action.dispatch()
        async let second: Void = action.dispatch()
        var errors: [OrchError.Code] = []
        do { try await first } catch let error as OrchError { errors.append(error.code) }
        do { try await second } catch let error as OrchError { errors.append(error.code) }
        #expect(errors == [.ebusy] || errors == [.estate])
        #expect(await action.state == .dispatched)
        #expect(try await journal.verify() == (await journal.sequence))
    }

    @Test func whatIsBeingRecordedKeepsItsJournal() async throws {
        let folder = try Folder()
        let path = try folder.file("journal.db")
        func dropped() async throws -> Task<Bool, any Error> {
            let journal = try await Journal(path)
            return Task { try await journal.record(kind: "note", key: "n") }
        }
        let task = try await dropped()
        task.cancel()  // it can not be taken back
        #expect(try await task.value)
        #expect(try await reopened(path).find("n") != nil)
    }

    @Test func whatAWalkThrowsEndsItAndIsThrown() async throws {
        let folder = try Folder()
        let journal = try await Journal(try folder.file("journal.db"))
        for number in 0..<5 { try await journal.record(kind: "note", key: "n\(number)") }
        let seen = try await journal.keys(until: nil)
        #expect(seen == ["n0", "n1", "n2", "n3", "n4"])
        #expect(try await journal.keys(until: "n2") == ["n0", "n1", "n2"])
        await #expect(throws: Enough.self) { try await journal.throwing() }
    }

    @Test func aSecondCoordinatorIsRefused() async throws {
        let folder = try Folder()
        let path = try folder.file("journal.db")
        let first = try await Journal(path)
        let error = await #expect(throws: OrchError.self) { try await Journal(path) }
        #expect(error?.code == .elocked)
        #expect(error?.message.contains("\(getpid())") == true)
        _ = await first.sequence
    }
}

struct Enough: Error {}

private final class Asked: Sendable {
    let keys = Locked<[String]>([])
}

extension Journal {
    fileprivate func keys(until last: String?) throws -> [String] {
        var keys: [String] = []
        try each { record in
            keys.append(record.key)
            return record.key != last
        }
        return keys
    }

    fileprivate func throwing() throws {
        try each { _ in throw Enough() }
    }
}

final class Counter: Sendable {
    private let counted = Locked(0)
    func count() { counted.withLock { $0 += 1 } }
    var value: Int { counted.withLock { $0 } }
}

extension Array {
    func asyncMap<Result>(_ body: (Element) async throws -> Result) async rethrows -> [Result] {
        var results: [Result] = []
        for element in self { results.append(try await body(element)) }
        return results
    }
}

/// Handles are given back by the journal's own thread, a moment after they are dropped.
func reopened(_ path: String, on context: Context? = nil) async throws -> Journal {
    var journal: Journal?
    try await eventually("the journal is free") {
        do throws(OrchError) {
            journal = try await Journal(path, on: context)
            return true
        } catch where error.code == .elocked {
            return false
        }
    }
    return try #require(journal)
}
