// SPDX-License-Identifier: Apache-2.0
import Foundation
import Orch
import Testing

@Suite(.timeLimit(.minutes(2))) struct BrokerTests {
    static let request = #"{"model":"m","max_tokens":100,"messages":[{"role":"user","content":"hello"}]}"#

    static func model() throws -> HttpServer {
        try HttpServer { _ in
            (
                200,
                #"{"type":"message","role":"assistant","content":[{"type":"text","text":"hi"}],"#
                    + #""usage":{"input_tokens":7,"output_tokens":5}}"#
            )
        }
    }

    @Test func onlyWhatIsGrantedReachesTheUpstream() async throws {
        let folder = try Folder()
        let upstream = try Self.model()
        let context = try Context()
        let journal = try await Journal(try folder.file("journal.db"), on: context)
        let broker = try await Broker(context, journal: journal)
        var anthropic = Upstream(upstream.url, credential: .apiKey, secret: "sk-of-the-host")
        anthropic.inputPriceMicroUsdPerMtok = 3_000_000
        anthropic.outputPriceMicroUsdPerMtok = 15_000_000
        try await broker.setUpstream("ai.anthropic", anthropic)
        try await broker.setBudget(Spending(requests: 100))
        let operations = try await broker.operations()
        let principal = try await Principal(
            broker, "run/T1/1", .init(generation: 1, budget: Spending(microUsd: 1_000_000)))
        let (fd, port) = try listenOnLoopback()
        defer { close(fd) }
        try await broker.addListener(fd, as: principal)

        let refused = await post(port, "/ai.anthropic/v1/messages", Self.request)
        #expect(refused.hasPrefix("HTTP/1.1 403"), "\(refused)")
        #expect(refused.contains("no_grant"))
        #expect(upstream.requests.isEmpty)

        try await principal.grant(Grant("ai.anthropic"))
        let allowed = await post(
            port, "/ai.anthropic/v1/messages", Self.request, ["x-api-key: sk-of-the-guest"])
        #expect(allowed.hasPrefix("HTTP/1.1 200"), "\(allowed)")
        #expect(allowed.contains(#""text":"hi""#))
        let sent = try #require(upstream.requests.first)
        #expect(upstream.requests.count == 1)
        #expect(sent.head.lowercased().contains("x-api-key: sk-of-the-host"))
        #expect(!sent.head.contains("sk-of-the-guest"))
        #expect(await principal.spent == Spending(requests: 1, tokens: 12, microUsd: 96))
        #expect(await broker.spent == Spending(requests: 1, tokens: 12, microUsd: 96))
        #expect(await !principal.budgetHit)

        let (settled, unknown) = try await principal.revoke()
        #expect((settled, unknown) == (0, 0))
        let closed = await #expect(throws: OrchError.self) { try await broker.addListener(fd, as: principal) }
        #expect(closed?.code == .eclosed)

        var events: [OperationEvent] = []
        for await operation in operations {
            #expect(operation.principal == principal.id && operation.operation == "ai.anthropic")
            if operation.event == .refused { #expect(operation.code == "no_grant") }
            events.append(operation.event)
            if operation.event == .observed { break }
        }
        #expect(events == [.refused, .dispatched, .observed])
        let kinds = try await journal.actions("ai.").map(\.kind)
        #expect(!kinds.isEmpty)
    }

    @Test func anOperationOfASandboxGoesThroughTheBroker() async throws {
        let folder = try Folder()
        let upstream = try Self.model()
        let context = try Context()
        let broker = try await Broker(context, journalPath: try folder.file("journal.db"))
        try await broker.setUpstream("ai.anthropic", Upstream(upstream.url))
        let client = """
            import sys, urllib.request
            data = sys.stdin.buffer.read()
            print(urllib.request.urlopen(urllib.request.Request(sys.argv[1], data,
                {"Content-Type": "application/json"}), timeout=20).read().decode())
            """
        func ask(_ net: SandboxNet) async throws -> SandboxResult {
            let sandbox = try await Sandbox(context, .init(net: net))
            try await sandbox.start()
            if net == .broker {
                let principal = try await Principal(broker, "in-a-sandbox")
                try await principal.grant(Grant("ai.anthropic"))
                try await broker.addListener(try await sandbox.listenerFd(), as: principal)
            }
            return try await sandbox.run(
                [
                    "/usr/bin/python3", "-c", client,
                    "http://127.0.0.1:\(Sandbox.brokerPort)/ai.anthropic/v1/messages",
                ],
                .init(input: Array(Self.request.utf8)))
        }
        let without = try await ask(.none)
        #expect(!without.status.isSuccess)
        #expect(upstream.requests.isEmpty)
        let with = try await ask(.broker)
        #expect(with.status.isSuccess, "\(with.stderrText)")
        #expect(with.stdoutText.contains(#""text":"hi""#))
        #expect(upstream.requests.count == 1)
    }

    @Test func aMessageIsAskedForBeforeItIsSentAgain() async throws {
        let folder = try Folder()
        let path = try folder.file("journal.db")
        let destination = try HttpServer { request in
            request.line.hasPrefix("GET /sent/run-k2 ") ? (200, "{}") : (404, "{}")
        }
        // Two operations of an earlier coordinator that did not live to see their outcome.
        do {
            let context = try Context()
            let journal = try await Journal(path, on: context)
            for key in ["run-k1", "run-k2"] {
                let request = #"{"probe_url":"\#(destination.url)/sent/\#(key)"}"#
                let (_, action) = try await journal.begin(
                    .init(kind: "notify.send", key: key, request: Array(request.utf8)))
                try await action.dispatch()
            }
        }
        let context = try Context()
        let mine = try await reopened(path, on: context)
        let broker = try await Broker(context, journal: mine)
        let recovery = try await mine.recover(asking: broker)
        #expect(destination.requests.count == 2)
        #expect(recovery.rows.map(\.probe) == [.notApplied, .applied], "\(recovery)")
        #expect(await recovery.rows.asyncMap { await $0.action.state } == [.failed, .confirmed])
        let other = try Context()
        let foreign = try await Broker(other, journalPath: try folder.file("other.db"))
        let error = await #expect(throws: OrchError.self) { try await mine.recover(asking: foreign) }
        #expect(error?.code == .einval)
    }

    @Test func badUpstreamsAndForeignJournalsAreRefused() async throws {
        let folder = try Folder()
        let context = try Context()
        let broker = try await Broker(context, journalPath: try folder.file("journal.db"))
        let url = await #expect(throws: OrchError.self) {
            try await broker.setUpstream("ai.openai", Upstream("ftp://nowhere"))
        }
        #expect(url?.code == .einval)
        let unknown = await #expect(throws: OrchError.self) {
            try await broker.setUpstream("ai.nobody", Upstream("http://127.0.0.1:1"))
        }
        #expect(unknown?.code == .enoent)
        let foreign = try await Journal(try folder.file("foreign.db"))
        let error = await #expect(throws: OrchError.self) { try await Broker(context, journal: foreign) }
        #expect(error?.code == .einval)
        try await broker.addSpent(Spending(requests: 3))
        #expect(await broker.spent.requests == 3)
    }
}
