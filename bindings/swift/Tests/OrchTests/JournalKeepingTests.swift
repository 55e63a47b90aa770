// SPDX-License-Identifier: Apache-2.0
import Foundation
import Orch
import Testing

private let hourMs: Int64 = 3_600_000

private func nowMs() -> Int64 { Int64(Date().timeIntervalSince1970 * 1000) }

/// Permits, timers, records, and what is made of a backup.
@Suite(.timeLimit(.minutes(2))) struct JournalKeepingTests {
    @Test func oneActionUsesAPermitUp() async throws {
        let folder = try Folder()
        let journal = try await Journal(try folder.file("journal.db"))
        let permit = try await journal.issue(.init("p", kind: "post", note: Array("she said so".utf8)))
        #expect(permit.state == .issued && permit.state.description == "ISSUED")
        #expect(permit.note == Array("she said so".utf8) && permit.action == nil && permit.expiresAtMs == 0)
        #expect(permit.epoch == (await journal.epoch))
        let (begin, action) = try await journal.begin(.init(kind: "post", key: "a", permit: "p"))
        #expect(begin == .fresh)
        let refused = await #expect(throws: OrchError.self) {
            try await journal.begin(.init(kind: "post", key: "b", permit: "p"))
        }
        #expect(refused?.code == .epermit)
        #expect(try await journal.find("b") == nil)
        let used = try #require(try await journal.permit("p"))
        #expect(used.state == .used && used.id == permit.id)
        #expect(used.action == (await action.record.id))
        #expect(try await journal.permit("nowhere") == nil)

        try await journal.issue(.init("back", kind: "post"))
        try await journal.revokePermit("back")
        let again = await #expect(throws: OrchError.self) { try await journal.revokePermit("back") }
        #expect(again?.code == .estate)
        try await journal.issue(.init("late", kind: "post", expiresAtMs: nowMs() - 1000))
        for name in ["back", "late"] {
            let error = await #expect(throws: OrchError.self) {
                try await journal.begin(.init(kind: "post", key: "b", permit: name))
            }
            #expect(error?.code == .epermit)
        }
        #expect(try await journal.permits.map(\.state) == [.used, .revoked, .expired])
        let other = await #expect(throws: OrchError.self) {
            try await journal.issue(.init("p", kind: "post", fingerprint: [1]))
        }
        #expect(other?.code == .econflict)
    }

    @Test func theLifeOfATimer() async throws {
        let folder = try Folder()
        let journal = try await Journal(try folder.file("journal.db"))
        #expect(try await journal.nextTimer == nil)
        let timer = try await journal.setTimer("t", .after(ms: hourMs), payload: [1, 2, 3])
        #expect(timer.name == "t" && timer.round == 1 && timer.delayMs == hourMs)
        #expect(timer.payload == [1, 2, 3])
        #expect(abs(timer.dueAtMs - nowMs() - hourMs) < 60_000)
        let again = try await journal.setTimer("t", .at(ms: 1))
        #expect(again.round == 2 && again.id == timer.id && again.dueAtMs == 1 && again.payload == nil)
        let stale = await #expect(throws: OrchError.self) { try await timer.done() }
        #expect(stale?.code == .estate)
        let next = try #require(try await journal.nextTimer)
        #expect(next.timer.name == "t" && next.waitMs == 0)
        try await again.done()
        #expect(await again.state == .done)
        try await journal.setTimer("u", .after(ms: hourMs)).cancel()
        #expect(try await journal.timers.asyncMap { await $0.state.description } == ["DONE", "CANCELED"])
        #expect(try await journal.timer("u")?.state == .canceled)
        #expect(try await journal.timer("nowhere") == nil)
    }

    @Test func dueTimersAreToldOnceForEachRound() async throws {
        let folder = try Folder()
        let path = try folder.file("journal.db")
        do {
            let journal = try await Journal(path)
            try await journal.setTimer("past", .at(ms: 1))
            var due = try await journal.dueTimers().makeAsyncIterator()
            #expect(await due.next()?.name == "past")
            try await journal.setTimer("soon", .after(ms: 20))
            #expect(await due.next()?.name == "soon")
            // Set anew it is due anew.
            try await journal.setTimer("soon", .after(ms: 20))
            let soon = try #require(await due.next())
            #expect(soon.name == "soon" && soon.round == 2)
            try await soon.done()
        }
        // It was not done: told again by the next coordinator.
        let journal = try await reopened(path)
        var due = try await journal.dueTimers().makeAsyncIterator()
        #expect(await due.next()?.name == "past")
    }

    @Test func recordsAreReadAndWatched() async throws {
        let folder = try Folder()
        let path = try folder.file("journal.db")
        do {
            let journal = try await Journal(path)
            let (_, action) = try await journal.begin(.init(kind: "post", key: "k"))
            try await action.dispatch()
            try await action.unknown()
            try await action.decide(.notApplied, by: "Ada")
            try await journal.issue(.init("p", kind: "post"))
            try await journal.setTimer("t", .after(ms: hourMs))
            let records = try await journal.records()
            #expect(records.map(\.sequence) == Array(1...(await journal.sequence)))
            #expect(records[0].type == .generation && records[0].state == nil && records[0].stateName == "")
            #expect(records[0].subject == (await journal.generation))
            #expect(records[1].type.description == "action" && records[1].state == .action(.intent))
            #expect(records[1].name == "k" && records[1].kind == "post" && records[1].attempt == 1)
            let states = records.map(\.state)
            #expect(states.contains(.decision(.notApplied)) && states.contains(.permit(.issued)))
            #expect(states.contains(.timer(.pending)) && records.contains { $0.stateName == "NOT_APPLIED" })
            #expect(records.allSatisfy { abs($0.atMs - nowMs()) < hourMs })
            #expect(records.allSatisfy { $0.generation == records[0].subject })
            #expect(try await journal.records(after: 2, limit: 1) == [records[2]])
            #expect(try await journal.names(until: "p").last == "p")

            var all = try await journal.watch().makeAsyncIterator()
            var new = try await journal.watch(after: nil).makeAsyncIterator()
            for record in records { #expect(await all.next() == record) }
            try await journal.record(kind: "note", key: "n")
            let said = [await all.next(), await new.next()]
            #expect(said.allSatisfy { $0?.name == "n" && $0?.sequence == UInt64(records.count + 1) })
            // A reader that goes away ends its watch, another one goes on.
            let reader = Task { [stream = try await journal.watch()] in for await _ in stream {} }
            reader.cancel()
            await reader.value
            try await journal.record(kind: "note", key: "m")
            #expect(await all.next()?.name == "m")
        }
        _ = try await reopened(path)
    }

    @Test func whatAQueryAsksFor() async throws {
        let folder = try Folder()
        let journal = try await Journal(try folder.file("journal.db"))
        for number in 0..<4 {
            let (_, action) = try await journal.begin(
                .init(kind: number % 2 == 0 ? "post.a" : "mail", key: "k\(number)"))
            if number == 2 { try await action.fail() }
        }
        func keys(_ query: Journal.Query) async throws -> [String] {
            try await journal.actions(query).map(\.key)
        }
        #expect(try await keys(.init()) == ["k0", "k1", "k2", "k3"])
        #expect(try await keys(.init(kindPrefix: "post.")) == ["k0", "k2"])
        #expect(try await keys(.init(keyPrefix: "k3")) == ["k3"])
        #expect(try await keys(.init(states: [.failed, .confirmed])) == ["k2"])
        var query = Journal.Query()
        query.newestFirst = true
        query.limit = 2
        #expect(try await keys(query) == ["k3", "k2"])
        query.afterId = try #require(try await journal.find("k2")?.record.id)
        #expect(try await keys(query) == ["k1", "k0"])
        query = .init()
        query.updatedFromMs = nowMs() + hourMs
        #expect(try await keys(query) == [])
        query.updatedFromMs = 0
        query.updatedBeforeMs = nowMs() + hourMs
        #expect(try await keys(query).count == 4)
    }

    @Test func pruningAndExporting() async throws {
        let folder = try Folder()
        let journal = try await Journal(try folder.file("journal.db"))
        let body = [UInt8](repeating: 120, count: 5000)
        let (_, action) = try await journal.begin(.init(kind: "post", key: "k", request: body))
        try await action.dispatch()
        try await action.observe(Array("änswer".utf8))
        try await action.confirm()
        let lines = try await journal.lines()
        #expect(lines.allSatisfy { $0.hasSuffix("\n") })
        #expect(lines.first?.contains("\"journal\"") == true && lines.last?.contains("\"end\"") == true)
        #expect(lines.contains { $0.contains("änswer") })
        #expect(try await journal.lines(records: true).count == lines.count + Int(await journal.sequence))
        await #expect(throws: Enough.self) { try await journal.lines(atMost: 1) }

        #expect(try await journal.prune(closedBeforeMs: 1000).actions == 0)
        let pruned = try await journal.prune(closedBeforeMs: nowMs() + hourMs)
        #expect(pruned.actions == 1 && pruned.bytes >= 5000)
        let record = try #require(try await journal.find("k")?.record)
        #expect(record.pruned && record.state == .confirmed)
        #expect(String(decoding: record.request ?? [], as: UTF8.self).hasSuffix("bytes:5000"))
        #expect(try await journal.verify() == (await journal.sequence))
    }

    @Test func aBackupIsRestored() async throws {
        let folder = try Folder()
        let path = try folder.file("journal.db")
        let backup = try folder.file("backup.db")
        do {
            let journal = try await Journal(path)
            let (_, action) = try await journal.begin(.init(kind: "post", key: "open"))
            try await action.dispatch()
            try await journal.issue(.init("p", kind: "post"))
            #expect(try await journal.backup(to: backup) == (await journal.sequence))
            let exists = await #expect(throws: OrchError.self) { try await journal.backup(to: backup) }
            #expect(exists?.code == .eexist)
            try await journal.record(kind: "note", key: "after")
        }
        _ = try await reopened(path)
        var restoration: Restoration?
        try await eventually("the journal is free") {
            do throws(OrchError) {
                restoration = try Journal.restore(backup, to: path, replace: true)
                return true
            } catch where error.code == .elocked { return false }
        }
        let done = try #require(restoration)
        #expect(done.epoch == 2 && done.unknown == 1 && done.void == 1 && done.lost >= 1 && done.records > 0)
        #expect(done.replaced?.contains(".replaced-") == true && done.text == done.description)
        let error = #expect(throws: OrchError.self) { try Journal.restore(backup, to: path) }
        #expect(error?.code == .eexist)
        let journal = try await Journal(path)
        #expect(await journal.epoch == 2)
        #expect(try await journal.find("open")?.state == .unknown)
        #expect(try await journal.find("after") == nil)
        #expect(try await journal.permit("p")?.state == .void)
        #expect(try await journal.records().contains { $0.type == .epoch })
    }
}

extension Journal {
    fileprivate func names(until last: String) throws -> [String] {
        var names: [String] = []
        try eachRecord { record in
            names.append(record.name)
            return record.name != last
        }
        return names
    }

    fileprivate func lines(records: Bool = false, atMost limit: Int = .max) throws -> [String] {
        var lines: [String] = []
        try export(records: records) { line in
            lines.append(line)
            if lines.count > limit { throw Enough() }
        }
        return lines
    }
}
