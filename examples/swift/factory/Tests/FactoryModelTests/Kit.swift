// SPDX-License-Identifier: Apache-2.0
import FactoryModel
import Foundation
import Observation
import Orch
import RunSetup
import Testing

struct Missing: Error, CustomStringConvertible {
    let description: String
}

let environment = ProcessInfo.processInfo.environment

/// Waits on change tracking alone, as a view does: where it does not fire, this does not return.
@MainActor
func until(_ holds: @MainActor () -> Bool) async {
    while true {
        let (changes, changed) = AsyncStream<Void>.makeStream()
        if withObservationTracking(holds, onChange: { changed.yield() }) { return }
        for await _ in changes { break }
    }
}

/// A temporary folder with the synthetic provider and its outside service. Both end with the object.
final class Stand {
    let folder: URL
    let address: String
    let idea: String
    private let provider = Process()
    /// Of earlier tests.
    private var before: Set<Int32> = []

    init(delayMs: Int = 0) throws {
        guard let build = environment["ORCH_BUILD_ROOT"], let source = environment["ORCH_SOURCE_ROOT"] else {
            throw Missing(description: "ORCH_BUILD_ROOT and ORCH_SOURCE_ROOT are not set")
        }
        let scenario = URL(fileURLWithPath: source + "/examples/scenarios/shelf")
        let description = try JSON(
            parsing: String(contentsOf: scenario.appending(path: "scenario.json"), encoding: .utf8))
        idea = try #require(description["idea"]?.string)
        folder = FileManager.default.temporaryDirectory.appending(path: "orch-factory-\(UUID().uuidString)")
        try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
        let output = Pipe()
        provider.executableURL = URL(fileURLWithPath: build + "/examples/synth-provider/synth-provider")
        provider.arguments = [
            "--scenario", scenario.path, "--port", "0", "--delay-ms", "\(delayMs)",
            "--outside-log", folder.appending(path: "outside.ndjson").path,
        ]
        provider.standardOutput = output
        try provider.run()
        address = String(decoding: output.fileHandleForReading.availableData, as: UTF8.self)
            .trimmingCharacters(in: .whitespacesAndNewlines)
        before = Set(try alive())
        guard address.hasPrefix("http://") else {
            throw Missing(description: "synth-provider said \(address)")
        }
    }

    deinit {
        if provider.isRunning {
            provider.terminate()
            provider.waitUntilExit()
        }
        try? FileManager.default.removeItem(at: folder)
    }

    var state: String { folder.appending(path: "state").path }

    var setup: RunSetup {
        var setup = RunSetup(provider: .anthropic)
        setup.baseURL = address
        setup.key = "sk-placeholder"
        setup.budget.tokens = 1_000_000
        setup.grants = ["notify.send": address + "/outside/announce"]
        return setup
    }

    /// What was really sent to the outside service.
    func announcements() throws -> Int {
        let log = try String(contentsOf: folder.appending(path: "outside.ndjson"), encoding: .utf8)
        return log.split(separator: "\n").count
    }

    func report() throws -> JSON {
        try JSON(parsing: String(contentsOfFile: state + "/report/report.json", encoding: .utf8))
    }

    /// Living processes below this one, but for the provider.
    func alive() throws -> [Int32] {
        var parents: [Int32: Int32] = [:]
        for pid in try FileManager.default.contentsOfDirectory(atPath: "/proc").compactMap({ Int32($0) }) {
            guard let stat = try? String(contentsOfFile: "/proc/\(pid)/stat", encoding: .utf8),
                let fields = stat.split(separator: ")").last?.split(separator: " "), fields.count > 1,
                fields[0] != "Z", fields[0] != "X"
            else { continue }
            parents[pid] = Int32(fields[1])
        }
        return parents.keys.filter { pid in
            var above = parents[pid]
            while let one = above, one != getpid() { above = parents[one] }
            return above == getpid() && pid != provider.processIdentifier && !before.contains(pid)
        }
    }

    /// A context that nobody has any more ends its helper a moment later.
    /// - Parameter names: those that may live on.
    @MainActor func checkNothingLives(
        but names: Set<String> = [], _ place: SourceLocation = #_sourceLocation
    ) async throws {
        func left() throws -> [Int32] {
            try alive().filter { pid in
                let name = (try? String(contentsOfFile: "/proc/\(pid)/comm", encoding: .utf8)) ?? ""
                return !names.contains(name.trimmingCharacters(in: .newlines))
            }
        }
        for _ in 1...100 where try !left().isEmpty { try await Task.sleep(for: .milliseconds(50)) }
        for pid in try left() {
            let words = (try? String(contentsOfFile: "/proc/\(pid)/cmdline", encoding: .utf8)) ?? ""
            let command = words.replacingOccurrences(of: "\0", with: " ")
            Issue.record("\(pid) still lives: \(command)", sourceLocation: place)
        }
    }
}
