// SPDX-License-Identifier: Apache-2.0
import Foundation
import Orch
import Testing

/// An actor of the host that lives on the context's thread.
private actor Neighbour {
    private let context: Context
    nonisolated var unownedExecutor: UnownedSerialExecutor { context.executor.asUnownedSerialExecutor() }

    init(_ context: Context) { self.context = context }

    func thread(_ proc: Proc) async -> (before: UInt, after: UInt) {
        let before = currentThread()
        _ = await proc.status
        return (before, currentThread())
    }

    func isHere() { context.executor.preconditionIsolated() }
}

private func currentThread() -> UInt { UInt(pthread_self()) }

private final class Threads: Sendable {
    let seen = Locked<Set<UInt>>([])
    func note() { _ = seen.withLock { $0.insert(currentThread()) } }
    var all: Set<UInt> { seen.withLock { $0 } }
}

/// One thread owns a context: whoever calls, and whoever drops the last handle.
@Suite(.timeLimit(.minutes(2))) struct OwnerTests {
    @Test func oneThreadOwnsAContextUnderLoad() async throws {
        let threads = Threads()
        let callers = Threads()
        let folder = try Folder()
        do {
            let context = try Context(.init(logLevel: .debug, log: { _, _ in threads.note() }))
            let journal = try await Journal(
                folder.path + "/j.db", .init(onRecord: { _ in threads.note() }), on: context)
            try await withThrowingTaskGroup(of: Void.self) { group in
                for number in 0..<16 {
                    group.addTask {
                        callers.note()
                        let scope = try await Scope(context, .init(label: "load-\(number)"))
                        for round in 0..<4 {
                            let proc = try await scope.spawn(["/bin/true"])
                            async let exit = proc.exit
                            try await journal.record(kind: "load", key: "\(number)-\(round)")
                            callers.note()
                            #expect(try await exit == .exited(0))
                        }
                        // Half are stopped, half dropped with a program in them, from whatever thread this
                        // is.
                        if number % 2 == 0 {
                            #expect(try await scope.stop().verdict == .dead)
                        } else {
                            _ = try await scope.spawn(["/bin/sleep", "1000"])
                        }
                    }
                }
                try await group.waitForAll()
            }
            try await eventually("the dropped scopes were told of") { threads.all.count > 0 }
        }
        #expect(threads.all.count == 1, "callbacks came on \(threads.all.count) threads")
        #expect(threads.all.isDisjoint(with: callers.all))
    }

    @Test func anActorOfTheHostSharesTheThread() async throws {
        let context = try Context()
        let scope = try await Scope(context)
        let proc = try await scope.spawn(["/bin/true"])
        let neighbour = Neighbour(context)
        let (before, after) = await neighbour.thread(proc)
        #expect(before == after)
        await neighbour.isHere()
        _ = try await proc.exit
    }

    /// The control of the test above: from another thread the same demand ends the process.
    @Test func anotherThreadIsNotTakenForTheOwner() async {
        await #expect(processExitsWith: .failure) {
            guard let context = try? Context() else { exit(0) }
            context.executor.preconditionIsolated()
        }
    }

    @Test func aContextEndsWithItsLastHandle() async throws {
        let released = Counter()
        final class Token: Sendable {
            let counter: Counter
            init(_ counter: Counter) { self.counter = counter }
            deinit { counter.count() }
        }
        var scope: Scope?
        do {
            let token = Token(released)
            let context = try Context(.init(log: { _, _ in _ = token }))
            scope = try await Scope(context)
        }
        try await Task.sleep(for: .milliseconds(50))
        #expect(released.value == 0, "the scope keeps its context")
        let name = try #require(scope).name
        #expect(name.hasPrefix("orch-"))
        scope = nil
        try await eventually("the context is over") { released.value == 1 }
    }

    @Test func signalsOfTheHostAreNotTakenByTheThread() async throws {
        let context = try Context()
        let blocked = try await Masked(context).blocked()
        #expect(blocked.contains(SIGTERM) && blocked.contains(SIGINT) && blocked.contains(SIGPIPE))
        #expect(!blocked.contains(SIGSEGV) && !blocked.contains(SIGBUS))
    }
}

private actor Masked {
    private let context: Context
    nonisolated var unownedExecutor: UnownedSerialExecutor { context.executor.asUnownedSerialExecutor() }

    init(_ context: Context) { self.context = context }

    func blocked() throws -> Set<Int32> {
        var mask = sigset_t()
        pthread_sigmask(SIG_BLOCK, nil, &mask)
        return Set((1..<32).filter { sigismember(&mask, $0) == 1 })
    }
}
