// SPDX-License-Identifier: Apache-2.0
import Foundation
import Orch
import Testing

@Suite(.timeLimit(.minutes(2))) struct SandboxTests {
    @Test func aClosedFileIsRefusedAndAnOpenOneIsRead() async throws {
        let context = try Context()
        let folder = try Folder()
        let file = try folder.file("word", "open sesame\n")
        try open(folder.path)
        func read(_ allowed: Bool) async throws -> SandboxResult {
            let sandbox = try await Sandbox(context, .init(label: "files"))
            if allowed { try await sandbox.addPath(folder.path, .read) }
            return try await sandbox.run(["/bin/cat", file])
        }
        let refused = try await read(false)
        #expect(refused.status == .exited(1))
        #expect(refused.stdout.isEmpty)
        #expect(refused.stderrText.contains("No such file"))
        // The control: the same attempt where it is allowed.
        let allowed = try await read(true)
        #expect(allowed.status == .exited(0), "\(allowed.stderrText)")
        #expect(allowed.stdoutText == "open sesame\n")
        #expect(allowed.death.verdict == .dead)
    }

    @Test func theWorkspaceAndTheEnvironmentAreItsOwn() async throws {
        let context = try Context()
        let folder = try Folder()
        let sandbox = try await Sandbox(context)
        try await sandbox.setWorkspace(folder.path)
        try await sandbox.setEnvironment("GREETING", "hello")
        try await sandbox.setProtection("memory", .off)
        let result = try await sandbox.run(["/bin/sh", "-c", "echo $GREETING > out; pwd; id -u >&2"])
        #expect(result.status.isSuccess, "\(result.stderrText)")
        #expect(result.stdoutText == "/work\n")
        #expect(try String(contentsOfFile: folder.path + "/out", encoding: .utf8) == "hello\n")
        let error = await #expect(throws: OrchError.self) {
            try await sandbox.setProtection("nonsense", .off)
        }
        #expect(error?.code == .estate || error?.code == .enoent)
    }

    @Test func inputGoesInAndOutputIsCutAtTheLimit() async throws {
        let context = try Context()
        let input = [UInt8](repeating: 65, count: 3_000_000)
        let whole = try await Sandbox(context).run(
            ["/bin/cat"], .init(outputLimit: 4_000_000, input: input))
        #expect(whole.stdout == input)
        #expect(!whole.stdoutTruncated)
        let cut = try await Sandbox(context).run(["/bin/cat"], .init(outputLimit: 1000, input: input))
        #expect(cut.stdout == Array(input[..<1000]))
        #expect(cut.stdoutTruncated)
        // A program that does not read its input: no SIGPIPE, no hang.
        let unread = try await Sandbox(context).run(["/bin/true"], .init(input: input))
        #expect(unread.status == .exited(0))
    }

    @Test func theTimeLimitStopsTheWholeLoad() async throws {
        let context = try Context()
        let sandbox = try await Sandbox(context)
        let result = try await sandbox.run(
            ["/bin/sh", "-c", "setsid sleep 1000 & echo begun; exec sleep 1000"], .init(timeoutMs: 2000))
        #expect(result.status == .timedOut)
        #expect(result.reason == .stopped)
        #expect(result.stdoutText == "begun\n")
        #expect(result.death.verdict == .dead)
    }

    @Test func cancellingARunStopsTheLoad() async throws {
        let context = try Context()
        let sandbox = try await Sandbox(context)
        try await sandbox.start()
        let scope = try await sandbox.scope
        let running = Task { try await sandbox.run(["/bin/sleep", "1000"]) }
        let inode = await scope.pidnsInode
        try await eventually("the program runs") { programs(in: inode, named: "sleep").count == 1 }
        running.cancel()
        let error = await #expect(throws: OrchError.self) { try await running.value }
        #expect(error?.code == .ecanceled)
        #expect(try await scope.death.verdict == .dead)
    }

    @Test func runsInOneContextDoNotWaitForEachOther() async throws {
        let context = try Context()
        let clock = ContinuousClock()
        let begin = clock.now
        try await withThrowingTaskGroup(of: ExitStatus.self) { group in
            for _ in 0..<3 {
                group.addTask { try await Sandbox(context).run(["/bin/sleep", "2"]).status }
            }
            for try await status in group { #expect(status == .exited(0)) }
        }
        #expect(clock.now - begin < .seconds(5.5), "three runs of two seconds took \(clock.now - begin)")
    }

    @Test func aMissingPathIsAStartError() async throws {
        let context = try Context()
        let sandbox = try await Sandbox(context)
        try await sandbox.addPath("/nowhere/at/all", .read)
        let error = await #expect(throws: OrchError.self) { try await sandbox.start() }
        #expect(error?.code == .enoent)
        let again = await #expect(throws: OrchError.self) { try await sandbox.addPath("relative", .read) }
        #expect(again != nil)
    }

    @Test func aServiceInsideIsReached() async throws {
        let context = try Context()
        let sandbox = try await Sandbox(context)
        try await sandbox.start()
        let server = """
            import socket
            s = socket.create_server(("127.0.0.1", 7000))
            print("listening", flush=True)
            c = s.accept()[0]
            c.sendall(b"from inside")
            """
        let refused = await #expect(throws: OrchError.self) { try await sandbox.connect(7000) }
        #expect(refused?.errno == ECONNREFUSED)
        _ = try await sandbox.spawn(["/usr/bin/python3", "-c", server])
        var fd: Int32 = -1
        try await eventually("the service listens") {
            fd = (try? await sandbox.connect(7000)) ?? -1
            return fd >= 0
        }
        defer { close(fd) }
        var text = ""
        try await eventually("the service answers") {
            var chunk = [UInt8](repeating: 0, count: 100)
            let length = read(fd, &chunk, chunk.count)
            if length > 0 { text += String(decoding: chunk[..<length], as: UTF8.self) }
            return length == 0
        }
        #expect(text == "from inside")
        #expect(try await sandbox.stop().verdict == .dead)
    }

    @Test func theReportHasItsProbesAndControls() async throws {
        let context = try Context()
        let report = try await context.sandboxReport()
        let row = try #require(report.rows.first { $0.channel == "file.read" })
        #expect(row.state == .enforced, "\(report)")
        #expect(row.probe == .passed)
        #expect(row.control == .passed)
        #expect(report.rows.allSatisfy { ($0.remedy == nil) == ($0.state == .enforced) }, "\(report)")
    }

    /// Root's sandbox is another user.
    private func open(_ folder: String) throws {
        try FileManager.default.setAttributes([.posixPermissions: 0o755], ofItemAtPath: folder)
    }
}
