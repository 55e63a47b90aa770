// SPDX-License-Identifier: Apache-2.0
import Orch
import Testing

@Suite(.timeLimit(.minutes(2))) struct SandboxPoolTests {
    @Test func whatIsTakenStandsAndIsACopyOfThePattern() async throws {
        let context = try Context()
        let pattern = try await Sandbox(context)
        try await pattern.setEnvironment("FROM", "the pattern")
        let pool = try await SandboxPool(of: pattern, ready: 2)
        try await pattern.setEnvironment("FROM", "later")
        var names: Set<String> = []
        for _ in 0..<3 {
            let sandbox = try await pool.take()
            names.insert(try await sandbox.scope.name)
            let result = try await sandbox.run(["/bin/sh", "-c", "echo $FROM"])
            #expect(result.stdoutText == "the pattern\n")
            #expect(result.death.verdict == .dead)
        }
        #expect(names.count == 3)
    }

    @Test func itFillsItselfAndGivesOnlyWhatIsReady() async throws {
        let context = try Context()
        let pool = try await SandboxPool(of: try await Sandbox(context), ready: 1)
        try await eventually("one is ready") { await pool.ready == 1 }
        // It fills itself meanwhile, so that there may be a second: at some time there is none.
        var taken: [Sandbox] = []
        while let sandbox = try await pool.takeReady(), taken.count < 100 { taken.append(sandbox) }
        #expect((1..<100).contains(taken.count))
        try await eventually("another one is ready") { await pool.ready == 1 }
        #expect(try await taken.first?.run(["/bin/sh", "-c", "exit 5"]).status == .exited(5))
    }

    @Test func whatWasTakenOutlivesThePool() async throws {
        let context = try Context()
        var pool: SandboxPool? = try await SandboxPool(of: try await Sandbox(context), ready: 1)
        let sandbox = try #require(try await pool?.take())
        pool = nil
        #expect(try await sandbox.run(["/bin/true"]).status == .exited(0))
    }

    @Test func whatIsRefused() async throws {
        let context = try Context()
        let folder = try Folder()
        let pattern = try await Sandbox(context)
        for ready: UInt32 in [0, 257] {
            let error = await #expect(throws: OrchError.self) {
                try await SandboxPool(of: pattern, ready: ready)
            }
            #expect(error?.code == .einval)
        }
        try await pattern.setWorkspace(folder.path)
        let owned = await #expect(throws: OrchError.self) { try await SandboxPool(of: pattern, ready: 1) }
        #expect(owned?.code == .einval)
        let missing = try await Sandbox(context)
        try await missing.addPath(folder.path + "/missing", .read)
        let pool = try await SandboxPool(of: missing, ready: 1)
        let failed = await #expect(throws: OrchError.self) { try await pool.take() }
        #expect(failed?.code == .enoent)
    }

    @Test func aCancelledTakeTakesNothing() async throws {
        let context = try Context()
        let pool = try await SandboxPool(of: try await Sandbox(context), ready: 1)
        let waiting = Task {
            withUnsafeCurrentTask { $0?.cancel() }
            return try await pool.take()
        }
        let error = await #expect(throws: OrchError.self) { try await waiting.value }
        #expect(error?.code == .ecanceled)
        #expect(try await pool.take().run(["/bin/true"]).status == .exited(0))
    }
}
