// SPDX-License-Identifier: Apache-2.0
import Dispatch
import Foundation
import Orch
import RunSetup

/// Those of orch-demo(1).
enum ExitCode: Int32 {
    case fine = 0
    case error, usage, unenforceable, busy, nothing, provider
    case partial = 10
    case aborted, needsHuman
    case interrupted = 130

    init(_ code: OrchError.Code) {
        self =
            switch code {
            case .eunenforceable: .unenforceable
            case .elocked, .ebusy: .busy
            case .enoent: .nothing
            case .einval, .eparse, .eexist: .usage
            case .eupstream: .provider
            case .eneedhuman: .needsHuman
            default: .error
            }
    }

    init(ofEnd event: PipelineEvent) {
        let unreachable = event["reason"]?.string?.contains("upstream_unreachable") ?? false
        self =
            switch event["state"]?.string {
            case "DELIVERED": .fine
            case "PARTIAL": unreachable ? .provider : .partial
            case "ABORTED": .aborted
            default: .error
            }
    }
}

@main
enum Main {
    static func main() async {
        signal(SIGPIPE, SIG_IGN)
        do {
            let words = Array(CommandLine.arguments.dropFirst())
            exit(try await run(Arguments(words, ProcessInfo.processInfo.environment)).rawValue)
        } catch let wrong as Usage {
            say("pipeline: \(wrong.text)", to: .standardError)
            exit(ExitCode.usage.rawValue)
        } catch {
            say("pipeline: \(error)", to: .standardError)
            exit((error as? OrchError).map { ExitCode($0.code).rawValue } ?? ExitCode.error.rawValue)
        }
    }

    static func run(_ arguments: Arguments) async throws -> ExitCode {
        let context = try Context(.init(logLevel: .warning) { _, line in say(line, to: .standardError) })
        let pipeline = try await arguments.setup.open(arguments.state, idea: arguments.idea, in: context)
        if !arguments.json { say("\(arguments.setup.description)\nstate \(arguments.state)") }
        if let answers = arguments.answers { try await pipeline.answer(json: answers) }
        if arguments.yes { try await pipeline.acceptRecommendedIfAsked() }

        let events = pipeline.events
        let stopping = Task { await stopWhenInterrupted(pipeline) }
        defer { stopping.cancel() }
        let person = !arguments.json && !arguments.yes && isatty(STDIN_FILENO) != 0
        try await pipeline.start()
        var asked = false
        for await event in events {
            if let line = arguments.json ? event.line : describe(event) { say(line) }
            if event.name == "end" { return ExitCode(ofEnd: event) }
            // A resumed run said long ago that it waits.
            guard !asked, event.name == "overlay" || event.name == "run" else { continue }
            asked = await pipeline.overlays.contains(.needsHuman)
            if asked && !person {
                say(
                    "pipeline: fill in \(arguments.state)/questions.json; then --resume --answers F",
                    to: .standardError)
                return .needsHuman
            }
            if asked { try await ask(pipeline) }
        }
        throw OrchError(.eclosed, "the events ended before the run")
    }

    /// The first one ends the run: what runs is killed, and the report has the certificates. The second
    /// leaves at once: what runs is killed too, and the run can be resumed.
    static func stopWhenInterrupted(_ pipeline: Pipeline) async {
        let (signals, continuation) = AsyncStream<Void>.makeStream()
        let sources = [SIGINT, SIGTERM].map { number in
            signal(number, SIG_IGN)
            let source = DispatchSource.makeSignalSource(signal: number, queue: .global())
            source.setEventHandler { continuation.yield() }
            source.resume()
            return source
        }
        var count = 0
        for await _ in signals {
            count += 1
            if count > 1 { exit(ExitCode.interrupted.rawValue) }
            say("pipeline: stopping; once more to leave at once, and to --resume later", to: .standardError)
            Task { try await pipeline.stop("stopped by the user") }
        }
        for source in sources { source.cancel() }
    }

    static func ask(_ pipeline: Pipeline) async throws {
        let questions = try await pipeline.status()["questions"]?.array?.filter { $0["answer"] == nil } ?? []
        // Reading from a terminal blocks.
        Thread.detachNewThread {
            var answers: [String: String] = [:]
            for question in questions {
                guard let id = question["id"]?.string, let recommended = question["recommended"]?.string
                else { continue }
                say("? \(id) [Enter: \(recommended)]")
                answers[id] = readLine() ?? ""
            }
            Task { [answers] in try await pipeline.answer(answers) }
        }
    }
}

extension Pipeline {
    /// A resumed run may have its answers.
    func acceptRecommendedIfAsked() throws(OrchError) {
        do { try acceptRecommended() } catch where error.code == .estate {}
    }
}
