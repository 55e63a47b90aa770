// SPDX-License-Identifier: Apache-2.0
import Glibc
import Orch
import Testing

@Suite(.timeLimit(.minutes(2))) struct ScopeTests {
    @Test func daemonsAreDeadAfterAStop() async throws {
        let context = try Context()
        let scope = try await Scope(context, .init(label: "daemons"))
        try await scope.start()
        #expect(await scope.rung != nil)
        let leader = try await scope.spawn([
            "/bin/sh", "-c", "setsid sleep 1000 & setsid sleep 1000 & exec sleep 1000",
        ])
        try await leader.started
        let initPid = try #require(await scope.initPid)
        let inode = await scope.pidnsInode
        try await eventually("three sleeps") { programs(in: inode, named: "sleep").count == 3 }
        let sleeps = programs(in: inode, named: "sleep")
        let death = try await scope.stop()
        #expect(death.verdict == .dead, "\(death)")
        #expect(death.aliveAtRequest == 3)
        #expect(death.initProcess?.pid == initPid)
        #expect((death.initProcess?.startTimeTicks ?? 0) > 0)
        #expect(death.bootId.count == 36)
        for pid in sleeps { #expect(kill(pid, 0) == -1 && errno == ESRCH) }
        #expect(try await leader.exit == .signaled(SIGKILL))
        #expect(try await scope.death.scope == scope.name)
    }

    @Test func aProgramsExitIsTold() async throws {
        let context = try Context()
        let scope = try await Scope(context)
        let proc = try await scope.spawn(["/bin/sh", "-c", "exit 7"])
        #expect(try await proc.exit == .exited(7))
        #expect(await proc.status == .exited(7))
        let killed = try await scope.spawn(["/bin/sleep", "1000"])
        try await killed.started
        try await killed.signal(SIGTERM)
        #expect(try await killed.exit == .signaled(SIGTERM))
        try await scope.stop()
    }

    @Test func aTimeLimitEndsTheScope() async throws {
        let context = try Context()
        var options = Scope.Options()
        // Long enough for a loaded machine to start the program within it.
        options.timeLimitMs = 5000
        options.processLimit = 20
        options.requiredLimits = [.time, .processes]
        let scope = try await Scope(context, options)
        let proc = try await scope.spawn(["/bin/sleep", "1000"])
        #expect(await proc.reason == nil)
        #expect(try await scope.death.limit == .time)
        #expect(try await proc.exit == .signaled(SIGKILL))
        #expect(await proc.reason == .time)
        #expect(await scope.limit(.processes)?.state == .enforced)
        #expect(await scope.limit(.cpu)?.state == .unasked)
    }

    @Test func aProgramThatIsNotThereIsAnError() async throws {
        let context = try Context()
        let scope = try await Scope(context)
        let proc = try await scope.spawn(["/nowhere/program"])
        let error = await #expect(throws: OrchError.self) { try await proc.exit }
        #expect(error?.code == .espawn)
        #expect(error?.errno == ENOENT)
    }

    @Test func theLeadersExitEndsTheScope() async throws {
        let context = try Context()
        let scope = try await Scope(context)
        _ = try await scope.spawn(
            ["/bin/sh", "-c", "setsid sleep 1000 & exit 0"],
            .init(environment: ["PATH": "/bin:/usr/bin"], leader: true))
        #expect(try await scope.death.verdict == .dead)
    }

    @Test func aCancelledWaitLeavesTheProgram() async throws {
        let context = try Context()
        let scope = try await Scope(context)
        let proc = try await scope.spawn(["/bin/sleep", "1000"])
        try await proc.started
        let waiting = Task { try await proc.exit }
        try await Task.sleep(for: .milliseconds(20))
        waiting.cancel()
        let error = await #expect(throws: OrchError.self) { try await waiting.value }
        #expect(error?.code == .ecanceled)
        #expect(await proc.status == nil)
        // A stop in a cancelled task still ends with its certificate.
        let stopping = Task { () throws -> Death in
            withUnsafeCurrentTask { $0?.cancel() }
            return try await scope.stop()
        }
        #expect(try await stopping.value.verdict == .dead)
    }

    @Test func aStringWithANulByteIsRefused() async throws {
        let context = try Context()
        let error = await #expect(throws: OrchError.self) {
            try await Scope(context, .init(label: "a\0b"))
        }
        #expect(error?.code == .einval)
    }

    @Test func whatAKilledHostLeftIsCertified() async throws {
        let path = "/tmp/orch-swift-scopes-\(getpid())"
        defer { for end in ["", ".lock"] { unlink(path + end) } }
        #expect(throws: OrchError.self) { try recoverScopes(in: path) }
        // Of another boot: nothing is looked at, and all of it is dead.
        let record = "orch-scopes 1\nnamed orch-0123456789abcdef another-boot 1 1 2 3 4 5 6 7 0 % left\n"
        let file = try #require(fopen(path, "w"))
        fputs(record, file)
        fclose(file)
        let deaths = try recoverScopes(in: path, deadlineMs: 1000)
        #expect(deaths.map(\.scope) == ["orch-0123456789abcdef"])
        #expect(deaths.first?.verdict == .dead)
        #expect(try recoverScopes(in: path).isEmpty)

        let context = try Context()
        try await context.recordScopes(in: path)
        let error = #expect(throws: OrchError.self) { try recoverScopes(in: path) }
        #expect(error?.code == .elocked)
        let again = await #expect(throws: OrchError.self) { try await context.recordScopes(in: path) }
        #expect(again?.code == .estate)
    }
}
