// SPDX-License-Identifier: Apache-2.0
import Foundation
import Orch
import Testing

@Suite(.timeLimit(.minutes(2))) struct PipelineTests {
    @Test func anIdeaBecomesAProduct() async throws {
        let folder = try Folder()
        let context = try Context()
        let records = Counter()
        var options = Pipeline.Options(stateDir: folder.path + "/run", idea: "A server of letters")
        options.description = "a function of the test"
        options.onRecord = { _ in records.count() }
        let pipeline = try await Pipeline(context, options)
        try await pipeline.setExecutor(try await Executor(context, .callback(work)))
        let events = pipeline.events
        let second = pipeline.events
        #expect(try await pipeline.run() == .delivered)
        var names: [String] = []
        for await event in events { names.append(event.name) }
        #expect(names.contains("stage") && names.contains("merge") && names.last == "end", "\(names)")
        var last: PipelineEvent?
        for await event in second { last = event }
        #expect(last?["state"]?.string == "DELIVERED")
        #expect(await pipeline.state.description == "DELIVERED")
        #expect(await pipeline.overlays.isEmpty)
        let product = try #require(await pipeline.productPath)
        #expect(FileManager.default.fileExists(atPath: product + "/app.py"))
        #expect(FileManager.default.fileExists(atPath: try #require(await pipeline.reportPath)))
        #expect(try await pipeline.status()["state"]?.string == "DELIVERED")
        #expect(await pipeline.journal.sequence > 10)
        #expect(records.value > 10)
        let exists = await #expect(throws: OrchError.self) { try await Pipeline(context, options) }
        #expect(exists?.code == .eexist || exists?.code == .elocked)
    }

    @Test func aPersonAnswersAndALaterInstanceGoesOn() async throws {
        let folder = try Folder()
        let stateDir = folder.path + "/run"
        do {
            let context = try Context()
            var options = Pipeline.Options(stateDir: stateDir, idea: "A server of letters")
            options.answerTimeoutMs = -1
            let pipeline = try await Pipeline(context, options)
            try await pipeline.setExecutor(try await Executor(context, .callback(curious)))
            let error = await #expect(throws: OrchError.self) { try await pipeline.run() }
            #expect(error?.code == .eneedhuman)
            #expect(await pipeline.overlays == .needsHuman)
        }
        var status: JSON?
        try await eventually("the journal is free") {
            status = try? Pipeline.status(of: stateDir)
            return status != nil
        }
        #expect(status?["state"]?.string == "CLARIFY")

        let context = try Context()
        let pipeline = try await Pipeline(context, .init(resuming: stateDir))
        try await pipeline.setExecutor(try await Executor(context, .callback(curious)))
        let parse = await #expect(throws: OrchError.self) { try await pipeline.answer(json: "{\"answers\"") }
        #expect(parse?.code == .eparse)
        let stranger = await #expect(throws: OrchError.self) { try await pipeline.answer(["Q9": "x"]) }
        #expect(stranger?.code == .enoent)
        let questions = pipeline.events
        try await pipeline.answer(["Q1": "a \"quoted\" answer"])
        // A wait that is given up leaves the run as it is; then it is aborted.
        let waiting = Task { try await pipeline.run() }
        try await eventually("it goes on") { await pipeline.state.rawValue > RunState.clarify.rawValue }
        waiting.cancel()
        let canceled = await #expect(throws: OrchError.self) { try await waiting.value }
        #expect(canceled?.code == .ecanceled)
        #expect(await !pipeline.state.isEnd)
        try await pipeline.stop("seen enough")
        #expect(try await pipeline.run() == .aborted)
        var answers: [String?] = []
        for await event in questions where event.name == "answer" { answers.append(event["text"]?.string) }
        #expect(answers == ["a \"quoted\" answer"])
    }

    @Test func whatIsMissingIsRefused() async throws {
        let folder = try Folder()
        let context = try Context()
        let missing = await #expect(throws: OrchError.self) {
            try await Pipeline(context, .init(resuming: folder.path + "/nothing"))
        }
        #expect(missing?.code == .enoent)
        let pipeline = try await Pipeline(context, .init(stateDir: folder.path + "/run", idea: "x"))
        let roles = await #expect(throws: OrchError.self) { try await pipeline.start() }
        #expect(roles?.code == .estate)
        let grant = await #expect(throws: OrchError.self) { try await pipeline.allow(Grant("notify.send")) }
        #expect(grant?.code == .einval)
        try await pipeline.allow(Grant("notify.send", url: "http://127.0.0.1:1/"))
        try await pipeline.broker.setUpstream("ai.anthropic", Upstream("http://127.0.0.1:1"))
        try await pipeline.acceptRecommended()
    }
}

// MARK: What the roles leave

private let spec = """
    <spec xmlns="urn:orch:spec:1" name="letters" title="Letters">
      <summary>A server of letters.</summary>
      <product kind="http"><start><arg>python3</arg><arg>-B</arg><arg>app.py</arg></start></product>
      <requirement id="R1" title="A">GET /a answers 200 and A.</requirement>
    </spec>
    """
private let checks = """
    <checks xmlns="urn:orch:checks:1">
      <check id="C1" requirement="R1" visibility="visible" file="checks/c1.py"/>
    </checks>
    """
private let check = """
    import os, urllib.request
    print("1..1")
    try:
        got = urllib.request.urlopen(os.environ["PRODUCT_URL"] + "/a", timeout=5).read().decode()
    except Exception as error:
        got = str(error)
    print(("ok" if got == "A" else "not ok") + " 1 - got " + repr(got))
    """
private let plan = """
    <plan xmlns="urn:orch:plan:1">
      <task id="T1" title="Server"><description>The server.</description>
        <requirement ref="R1"/><write path="app.py"/></task>
    </plan>
    """
private let app = """
    import http.server, os
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            found = self.path == "/a"
            self.send_response(200 if found else 404)
            self.send_header("Content-Length", "1")
            self.end_headers()
            self.wfile.write(b"A" if found else b"?")
        def log_message(self, *arguments):
            pass
    http.server.HTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler).serve_forever()
    """

@Sendable private func work(_ job: Job) async throws -> Int32 {
    try await answer(job, questions: #"{"questions":[]}"#)
}

@Sendable private func curious(_ job: Job) async throws -> Int32 {
    try await answer(
        job,
        questions:
            #"{"questions":[{"id":"Q1","text":"Which?","recommended":"this","kind":"text","options":[]}]}"#)
}

private func answer(_ job: Job, questions: String) async throws -> Int32 {
    let workspace = try #require(await job.workspace)
    func leave(_ path: String, _ text: String) throws {
        let file = URL(fileURLWithPath: workspace + "/out/" + path)
        try FileManager.default.createDirectory(
            at: file.deletingLastPathComponent(), withIntermediateDirectories: true)
        try (text + "\n").write(to: file, atomically: false, encoding: .utf8)
    }
    let line = job.packet.prefix { $0 != "\n" }
    let words = Dictionary(
        uniqueKeysWithValues: line.split(separator: " ").dropFirst().map { word in
            let parts = word.split(separator: "=", maxSplits: 1)
            return (String(parts[0]), String(parts[1]))
        })
    switch words["stage"] {
    case "clarify": try leave("questions.json", questions)
    case "specify": try leave("spec.xml", spec)
    case "check":
        try leave("checks.xml", checks)
        try leave("checks/c1.py", check)
    case "plan": try leave("plan.xml", plan)
    case "execute":
        // In the sandbox, as a program would.
        let script = "cat > /work/tree/app.py <<'END'\n\(app)\nEND\n"
        let proc = try await job.sandbox.spawn(["/bin/sh", "-c", script])
        #expect(try await proc.exit == .exited(0))
    case "review": try leave("review.json", #"{"veto":false,"reasons":[]}"#)
    default: return 1
    }
    return 0
}
