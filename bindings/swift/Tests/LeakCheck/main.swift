// SPDX-License-Identifier: Apache-2.0 LeakCheck COUNT [leak-swift | leak-c | leak-closure]: many callbacks of
// every kind, then everything is dropped, and nothing may be left: no handle, no closure. To be run under a
// leak checker as well, for the C side. The last argument leaks something on purpose: the checks have to
// notice.
import COrch
import Foundation
import Orch

let closures = Locked(0)
let calls = Locked(0)

/// Captured by each closure that the library is given.
final class Token: Sendable {
    init() { closures.withLock { $0 += 1 } }
    deinit { closures.withLock { $0 -= 1 } }
    func called() { calls.withLock { $0 += 1 } }
}

func fail(_ message: String) -> Never {
    print("LeakCheck: \(message)")
    // A leak checker may end the program without this.
    fflush(nil)
    exit(1)
}

func counted(_ what: String, _ body: () async throws -> Void) async throws {
    let before = calls.withLock { $0 }
    let begin = ContinuousClock().now
    try await body()
    let count = calls.withLock { $0 } - before
    print("\(what): \(count) calls in \(ContinuousClock().now - begin)")
    if count == 0 { fail("\(what): no call") }
}

func scopes(_ count: Int) async throws {
    let token = Token()
    let context = try Context(.init(logLevel: .debug, log: { _, _ in token.called() }))
    let scope = try await Scope(context)
    try await counted("log, events of programs") {
        for _ in 0..<count / 20 {
            let proc = try await scope.spawn(["/bin/true"])
            guard try await proc.exit == .exited(0) else { fail("/bin/true failed") }
            token.called()
        }
    }
    try await counted("stop") {
        for _ in 0..<count {
            guard try await scope.stop().verdict == .dead else { fail("not dead") }
            token.called()
        }
    }
    try await counted("scopes") {
        for number in 0..<count / 200 {
            let scope = try await Scope(context)
            // Some are stopped, some dropped with a program in them.
            let proc = try await scope.spawn(["/bin/sleep", "1000"], .init(leader: number % 3 == 0))
            try await proc.started
            if number % 2 == 0 { try await scope.stop() }
            token.called()
        }
    }
    try await counted("sandboxes") {
        for number in 0..<max(3, count / 1000) {
            let sandbox = try await Sandbox(context)
            if number % 3 == 0 { continue }
            let result = try await sandbox.run(["/bin/cat"], .init(input: Array("hello".utf8)))
            guard result.stdoutText == "hello" else { fail("cat said \(result)") }
            token.called()
        }
    }
    try await counted("sandboxes of a pool, and what they changed") {
        let folder = FileManager.default.temporaryDirectory.path
        let pattern = try await Sandbox(context)
        try await pattern.setOverlay(folder)
        try await pattern.denyPath("/work/closed")
        let pool = try await SandboxPool(of: pattern, ready: 2)
        for _ in 0..<max(3, count / 1000) {
            let sandbox = try await pool.take()
            _ = try await sandbox.run(["/bin/sh", "-c", "echo new >new"])
            let changes = try await sandbox.changes()
            guard changes.rows.map(\.path) == ["new"] else { fail("changed: \(changes.text)") }
            guard try await sandbox.why("/work/closed").denied == .read else { fail("not denied") }
            token.called()
        }
    }
    try await counted("waits that are cancelled") {
        let scope = try await Scope(context)
        let proc = try await scope.spawn(["/bin/sleep", "1000"])
        for _ in 0..<count / 10 {
            let waiting = Task { try await proc.exit }
            waiting.cancel()
            if case .success = await waiting.result { fail("sleep ended") }
            token.called()
        }
    }
}

func journal(_ count: Int, _ folder: String) async throws {
    let path = folder + "/journal.db"
    do {
        let token = Token()
        let journal = try await Journal(path, .init(onRecord: { _ in token.called() }))
        try await counted("records") {
            for number in 0..<count / 10 {
                let (_, action) = try await journal.begin(
                    .init(kind: "post", key: "\(number)", request: [1, 2, 3]))
                try await action.dispatch()
            }
        }
    }
    let token = Token()
    var opened: Journal?
    while opened == nil {
        opened = try? await Journal(path)
        if opened == nil { try await Task.sleep(for: .milliseconds(5)) }
    }
    let journal = opened!
    try await counted("probes") {
        struct Sometimes: Error {}
        let recovery = try await journal.recover(
            probe: { record in
                token.called()
                if record.id % 7 == 0 { throw Sometimes() }
                return record.id % 2 == 0 ? .applied(result: [4, 5, 6]) : .notApplied
            },
            decide: { _, _, _ in
                token.called()
                return nil
            }, handOver: { _ in token.called() })
        if recovery.rows.count != count / 10 { fail("\(recovery.rows.count) rows") }
    }
    try await counted("who waits for a person") {
        try await journal.recover(handOver: { _ in token.called() })
    }
    try await counted("records that are watched") {
        let number = Int(await journal.sequence)
        for end in [1, number] {
            var seen = 0
            for await _ in try await journal.watch() {
                token.called()
                seen += 1
                if seen == end { break }
            }
        }
        _ = try await journal.watch(after: nil)
    }
    try await counted("timers and permits") {
        for number in 0..<count / 100 {
            try await journal.issue(.init("p\(number)", kind: "post"))
            try await journal.setTimer("t\(number)", .at(ms: 1))
        }
        var due = try await journal.dueTimers().makeAsyncIterator()
        for _ in 0..<count / 100 {
            try await due.next()?.done()
            token.called()
        }
        if try await journal.permits.count != count / 100 { fail("permits are missing") }
        _ = try await journal.dueTimers()
    }
    try await counted("walks") {
        for _ in 0..<10 { try await journal.walk(token) }
        if try await journal.actions().count != count / 10 { fail("actions are missing") }
    }
}

extension Journal {
    fileprivate func walk(_ token: Token) throws {
        try each { _ in
            token.called()
            return true
        }
        try export(records: true) { _ in token.called() }
    }
}

func broker(_ count: Int, _ folder: String) async throws {
    let token = Token()
    let context = try Context()
    let broker = try await Broker(context, journalPath: folder + "/broker.db")
    try await counted("receivers and principals") {
        for number in 0..<count / 10 {
            // Each replaces the one before.
            try await broker.onOperation { _ in token.called() }
            let principal = try await Principal(broker, "p\(number)")
            try await principal.grant(Grant("ai.anthropic"))
            if number % 2 == 0 { try await principal.revoke() }
            token.called()
        }
    }
    _ = try await broker.operations()
}

func jobs(_ count: Int, _ folder: String) async throws {
    let token = Token()
    let context = try Context()
    struct Never: Error {}
    let executor = try await Executor(
        context,
        .callback { job in
            token.called()
            if job.packet == "throw" { throw Never() }
            return 0
        })
    let sandbox = try await Sandbox(context)
    try await sandbox.setWorkspace(folder)
    try await executor.prepare(sandbox)
    try await sandbox.start()
    try await counted("jobs") {
        for number in 0..<count / 20 {
            let job = try await executor.run(in: sandbox, packet: number % 2 == 0 ? "go" : "throw")
            _ = try await job.end
        }
    }
    // Refused options release what they came with, too.
    try await counted("refusals") {
        for _ in 0..<count / 20 {
            _ = try? Context(.init(helperPath: "relative", log: { _, _ in token.called() }))
            _ = try? await Journal("/nowhere/journal.db", .init(onRecord: { _ in token.called() }))
            token.called()
        }
    }
    let pipeline = try await Pipeline(context, .init(stateDir: folder + "/run", idea: "x"))
    try await pipeline.setExecutor(executor)
    _ = pipeline.events
}

let count = CommandLine.arguments.count > 1 ? Int(CommandLine.arguments[1]) ?? 0 : 0
let leak = CommandLine.arguments.count > 2 ? CommandLine.arguments[2] : ""
guard count >= 200 else { fail("usage: LeakCheck COUNT [leak-swift | leak-c | leak-closure]") }
var template = Array((NSTemporaryDirectory() + "/orch-leak-XXXXXX").utf8CString)
guard let made = mkdtemp(&template) else { fail("no temporary folder") }
let folder = String(cString: made)
do {
    try await scopes(count)
    try await journal(count, folder)
    try await broker(count, folder)
    try await jobs(count, folder)
} catch {
    fail("\(error)")
}
switch leak {
case "leak-swift":
    _ = Unmanaged.passRetained(try Context() as AnyObject)
case "leak-closure":
    _ = Unmanaged.passRetained(Token())
case "leak-c":
    // An error that nobody frees: the counters here know nothing of it.
    var error: OpaquePointer?
    orch_ctx_new(nil, nil, &error)
    error = nil
default:
    break
}
// The last handles are given back by the threads of their contexts.
let end = ContinuousClock().now + .seconds(["", "leak-c"].contains(leak) ? 20 : 1)
while Live.objects + closures.withLock({ $0 }) > 0, ContinuousClock().now < end {
    try await Task.sleep(for: .milliseconds(10))
}
try? FileManager.default.removeItem(atPath: folder)
print(
    "\(calls.withLock { $0 }) calls; left: \(Live.objects) handles, callbacks and threads, "
        + "\(closures.withLock { $0 }) closures")
fflush(nil)
guard Live.objects == 0, closures.withLock({ $0 }) == 0 else {
    fail("something was left")
}
