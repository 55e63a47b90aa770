// SPDX-License-Identifier: Apache-2.0
import Foundation
import Orch
import Testing

@Suite(.timeLimit(.minutes(2))) struct SandboxRulesTests {
    /// A tree with an open file and a closed folder; root's sandbox is another user.
    private func tree() throws -> Folder {
        let folder = try Folder()
        _ = try folder.file("open", "open\n")
        try FileManager.default.createDirectory(
            atPath: folder.path + "/closed", withIntermediateDirectories: false)
        _ = try folder.file("closed/secret", "the secret\n")
        try FileManager.default.setAttributes([.posixPermissions: 0o755], ofItemAtPath: folder.path)
        return folder
    }

    private let read = ["/bin/sh", "-c", "cat /shown/open; cat /shown/closed/secret"]

    @Test func aDeniedFolderIsClosedAndItsControlIsOpen() async throws {
        let context = try Context()
        let folder = try tree()
        let control = try await Sandbox(context)
        try await control.addPath(folder.path, at: "/shown", .read)
        #expect(try await control.run(read).stdoutText == "open\nthe secret\n")
        let sandbox = try await Sandbox(context)
        try await sandbox.addPath(folder.path, at: "/shown", .read)
        try await sandbox.denyPath("/shown/closed")
        let closed = try await sandbox.why("/shown/closed/secret")
        #expect(closed.denied == .read)
        #expect(closed.rule == "deny /shown/closed")
        #expect(closed.text.contains("/shown/closed"))
        #expect(try await sandbox.why("/shown/open", [.read, .write]).denied == .write)
        #expect(try await sandbox.why("/shown/open").denied.isEmpty)
        let refused = try await sandbox.run(read)
        #expect(refused.status == .exited(1))
        #expect(refused.stdoutText == "open\n")
        #expect(refused.reason == .exited)
        let late = await #expect(throws: OrchError.self) { try await sandbox.denyPath("/shown/open") }
        #expect(late?.code == .estate)
    }

    @Test func aPolicyIsReadWholeOrNotAtAll() async throws {
        let context = try Context()
        let folder = try tree()
        let policy = """
            <policy xmlns="urn:orch:policy:1">
              <path host="\(folder.path)" inner="/shown" access="read"/>
              <deny path="/shown/closed"/>
            </policy>
            """
        let sandbox = try await Sandbox(context)
        let wrong = policy.replacingOccurrences(of: "\"read\"", with: "\"everything\"")
        let refused = await #expect(throws: OrchError.self) {
            try await sandbox.readPolicy(wrong, name: "mine")
        }
        #expect(refused?.code == .einval)
        #expect(refused?.message.hasPrefix("mine:2") == true, "\(String(describing: refused))")
        #expect(try await sandbox.why("/shown/open").denied == .read)
        try await sandbox.readPolicy(policy, name: "mine")
        #expect(try await sandbox.why("/shown/open").denied.isEmpty)
        #expect(try await sandbox.why("/shown/closed").rule.contains("mine:3"))
        #expect(try await sandbox.run(read).stdoutText == "open\n")

        let file = try folder.file("policy.xml", policy)
        let other = try await Sandbox(context)
        try await other.loadPolicy(file)
        #expect(try await other.run(read).stdoutText == "open\n")
        let missing = await #expect(throws: OrchError.self) {
            try await Sandbox(context).loadPolicy("/nowhere")
        }
        #expect(missing?.code == .enoent)
    }

    @Test func anOverlayLeavesTheFolderAndTellsItsChanges() async throws {
        let context = try Context()
        let folder = try tree()
        let taken = try Folder()
        let sandbox = try await Sandbox(context)
        try await sandbox.setOverlay(folder.path)
        let early = await #expect(throws: OrchError.self) { try await sandbox.changes() }
        #expect(early?.code == .estate)
        let script = "cat open; rm open; echo new >added; ln -s /nowhere link"
        let result = try await sandbox.run(["/bin/sh", "-c", script])
        #expect(result.stdoutText == "open\n")
        #expect(result.status == .exited(0), "\(result.stderrText)")
        #expect(try String(contentsOfFile: folder.path + "/open", encoding: .utf8) == "open\n")
        let changes = try await sandbox.changes()
        #expect(changes.rows.map(\.path) == ["added", "link", "open"])
        #expect(changes.rows.map(\.kind) == [.added, .added, .deleted])
        #expect(changes.rows.map(\.bytes).first == 4)
        #expect(changes.text == "A added\nA link\nD open\n")
        try await changes.export(to: taken.path)
        #expect(
            try FileManager.default.contentsOfDirectory(atPath: taken.path).sorted() == ["added", "link"])
        #expect(try FileManager.default.destinationOfSymbolicLink(atPath: taken.path + "/link") == "/nowhere")
        let again = await #expect(throws: OrchError.self) { try await changes.export(to: taken.path) }
        #expect(again?.code == .eexist)
    }

    @Test func aFullDiskAndATimeThatIsOverAreReasons() async throws {
        let context = try Context()
        let fill = ["/bin/sh", "-c", "head -c 32M /dev/zero >/tmp/big || exit 3"]
        func run(_ argv: [String], tmpMib: UInt64 = 0, timeLimitMs: Int64 = 0) async throws -> SandboxResult {
            var options = Sandbox.Options()
            options.tmpMib = tmpMib
            options.timeLimitMs = timeLimitMs
            options.maxCpuPercent = 400
            return try await Sandbox(context, options).run(argv)
        }
        let full = try await run(fill, tmpMib: 8)
        #expect(full.status == .exited(3))
        #expect(full.reason == .disk)
        #expect(try await run(fill, tmpMib: 64).reason == .exited)
        // However early it is over: before the program runs, too.
        for timeLimitMs: Int64 in [1, 2, 3, 5, 8, 300] {
            #expect(try await run(["/bin/sleep", "1000"], timeLimitMs: timeLimitMs).reason == .time)
        }
    }
}
