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
        // What is decided is not asked again.
        #expect(try await journal.recover().rows.isEmpty)
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
