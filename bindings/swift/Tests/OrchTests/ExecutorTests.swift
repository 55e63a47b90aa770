// SPDX-License-Identifier: Apache-2.0
import Foundation
import Orch
import Testing

@Suite(.timeLimit(.minutes(2))) struct ExecutorTests {
    @Test func aCommandGetsThePacketAndTheWorkspace() async throws {
        let context = try Context()
        let folder = try Folder()
        let executor = try await Executor(
            context, .command(["/bin/sh", "-c", "cat > out.txt; echo a line of its own; exit 3"]))
        #expect(executor.kind == .command && executor.kind.description == "command")
        #expect(executor.operation == nil)
        let sandbox = try await Sandbox(context)
        try await sandbox.setWorkspace(folder.path)
        try await executor.prepare(sandbox)
        let early = await #expect(throws: OrchError.self) { try await executor.run(in: sandbox, packet: "x") }
        #expect(early?.code == .estate)
        try await sandbox.start()
        let job = try await executor.run(in: sandbox, packet: "orch-packet/1 the work\n")
        #expect(job.packet == "orch-packet/1 the work\n")
        var texts: [String] = []
        for await event in job.events { texts.append(event.text) }
        let end = try await job.end
        #expect(end.kind == .finished && end.status == 3, "\(end)")
        #expect(texts.joined().contains("a line of its own"))
        #expect(try await sandbox.stop().verdict == .dead)
        #expect(
            try String(contentsOfFile: folder.path + "/out.txt", encoding: .utf8)
                == "orch-packet/1 the work\n")
        #expect(await job.claimedTokens == 0)
    }

    @Test func aJobIsStoppedForItsTime() async throws {
        let context = try Context()
        let folder = try Folder()
        let executor = try await Executor(context, .command(["/bin/sleep", "1000"]))
        let sandbox = try await started(context, folder, executor)
        let job = try await executor.run(in: sandbox, packet: "x", timeoutMs: 200)
        #expect(try await job.end.kind == .timedOut)
        #expect(try await sandbox.stop().verdict == .dead)
    }

    @Test func aFunctionOfTheHostDoesTheWork() async throws {
        let context = try Context()
        let folder = try Folder()
        let executor = try await Executor(
            context,
            .callback { job in
                // It takes its time, and works where work belongs.
                try await Task.sleep(for: .milliseconds(20))
                #expect(await job.workspace != nil)
                let proc = try await job.sandbox.spawn(["/bin/sh", "-c", "echo done > out.txt; exit 4"])
                guard case .exited(let status) = try await proc.exit else { return 1 }
                return status
            })
        let sandbox = try await started(context, folder, executor)
        let end = try await executor.run(in: sandbox, packet: "x").end
        #expect(end.kind == .finished && end.status == 4, "\(end)")
        #expect(try String(contentsOfFile: folder.path + "/out.txt", encoding: .utf8) == "done\n")
        try await sandbox.stop()
    }

    @Test func whatAFunctionThrowsIsTheJobsMessage() async throws {
        let context = try Context()
        let folder = try Folder()
        struct NoIdea: Error {}
        let executor = try await Executor(context, .callback { _ in throw NoIdea() })
        let sandbox = try await started(context, folder, executor)
        let end = try await executor.run(in: sandbox, packet: "x").end
        #expect(end.status == -1 && end.message == "NoIdea()", "\(end)")
        try await sandbox.stop()
    }

    @Test func aFunctionMayFinishByItself() async throws {
        let context = try Context()
        let folder = try Folder()
        let executor = try await Executor(
            context,
            .callback { job in
                try await job.finish(9, "early")
                let again = await #expect(throws: OrchError.self) { try await job.finish(0) }
                #expect(again?.code == .estate)
                let end = await #expect(throws: OrchError.self) { try await job.end }
                #expect(end?.code == .estate)
                return 0
            })
        let sandbox = try await started(context, folder, executor)
        let end = try await executor.run(in: sandbox, packet: "x").end
        #expect(end.kind == .finished && end.status == 9 && end.message == "early", "\(end)")
        try await sandbox.stop()
    }

    @Test func whatIsNotThereAndWhatIsForeignIsRefused() async throws {
        let context = try Context()
        let missing = await #expect(throws: OrchError.self) {
            try await Executor(context, .claude(path: "/nowhere/claude"))
        }
        #expect(missing?.code == .enoent)
        let executor = try await Executor(context, .command(["/bin/true"]))
        let foreign = try await Sandbox(try Context())
        let error = await #expect(throws: OrchError.self) { try await executor.prepare(foreign) }
        #expect(error?.code == .einval)
    }

    private func started(_ context: Context, _ folder: Folder, _ executor: Executor) async throws -> Sandbox {
        let sandbox = try await Sandbox(context)
        try await sandbox.setWorkspace(folder.path)
        try await executor.prepare(sandbox)
        try await sandbox.start()
        return sandbox
    }
}
