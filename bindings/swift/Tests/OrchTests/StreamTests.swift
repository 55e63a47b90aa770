// SPDX-License-Identifier: Apache-2.0
import Orch
import Testing

@Suite(.timeLimit(.minutes(2))) struct StreamTests {
    @Test func outputIsThereBeforeTheExit() async throws {
        let context = try Context()
        let scope = try await Scope(context)
        let out = try await ProgramStream(
            context, .output, .init(captureFirstBytes: 3, captureLastBytes: 2, captureOnly: true))
        let proc = try await scope.spawn(
            ["sh", "-c", "sleep 1000 & echo one; echo two >&2; exit 3"],
            .init(stdoutStream: out, stderrStream: out))
        #expect(try await proc.exit == .exited(3))
        #expect(await out.reason == .cut)
        #expect(await out.captured == Array("oneo\n".utf8))
        #expect(await out.dropped == 3)
        #expect(await out.bytes == 8)
        let error = await #expect(throws: OrchError.self) { try await out.pause() }
        #expect(error?.code == .eclosed)
    }

    @Test func thereAndBack() async throws {
        let context = try Context()
        let scope = try await Scope(context)
        let input = try await ProgramStream(context, .input)
        let out = try await ProgramStream(context, .output, .init(paused: true))
        let proc = try await scope.spawn(["cat"], .init(stdinStream: input, stdoutStream: out))
        let sent = (0..<1_000_000).map { UInt8(truncatingIfNeeded: $0 &* 31) }
        // More than pipes and queue take: it waits for the reader.
        let writer = Task {
            try await input.write(sent)
            try await input.shut()
        }
        try await out.resume()
        var got: [UInt8] = []
        for await piece in out.chunks { got += piece }
        try await writer.value
        #expect(got == sent)
        #expect(try await proc.exit == .exited(0))
        #expect(try await input.end == .eof)
        #expect(await input.queued == 0)
    }

    @Test func aTerminalHasASize() async throws {
        let context = try Context()
        let scope = try await Scope(context)
        let terminal = try await ProgramStream(context, .pty, .init(rows: 33, columns: 101))
        let proc = try await scope.spawn(
            ["sh", "-c", "stty size; read line; stty size"],
            .init(stdinStream: terminal, stdoutStream: terminal, stderrStream: terminal))
        var text = ""
        for await piece in terminal.chunks {
            text += String(decoding: piece, as: UTF8.self)
            if text == "33 101\r\n" {
                try await terminal.resize(rows: 44, columns: 55)
                try await terminal.write(Array("\n".utf8))
            }
        }
        #expect(text.hasSuffix("44 55\r\n"), "\(text)")
        #expect(try await proc.exit == .exited(0))
        #expect(await terminal.reason == .eof)
    }
}
