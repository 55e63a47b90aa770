// SPDX-License-Identifier: Apache-2.0
import Foundation
import Orch
import Testing

struct NotYet: Error, CustomStringConvertible {
    let description: String
}

/// Waits for a state that nothing announces.
func eventually(_ what: String, within: Duration = .seconds(20), _ holds: () async throws -> Bool)
    async throws
{
    let clock = ContinuousClock()
    let end = clock.now + within
    while try await !holds() {
        if clock.now >= end { throw NotYet(description: "not within \(within): \(what)") }
        try await Task.sleep(for: .milliseconds(5))
    }
}

/// Host pids of the programs of that name in a scope's PID namespace. (An ordinary user can not ask the
/// scope's init, but can ask what runs under it.)
func programs(in pidnsInode: UInt64, named name: String) -> [Int32] {
    let files = FileManager.default
    let pids = ((try? files.contentsOfDirectory(atPath: "/proc")) ?? []).compactMap { Int32($0) }
    return pids.filter { pid in
        (try? files.destinationOfSymbolicLink(atPath: "/proc/\(pid)/ns/pid")) == "pid:[\(pidnsInode)]"
            && (try? String(contentsOfFile: "/proc/\(pid)/comm", encoding: .utf8)) == name + "\n"
    }
}

/// A folder that is removed with the object.
final class Folder: Sendable {
    let path: String

    init() throws {
        var template = Array((NSTemporaryDirectory() + "/orch-swift-XXXXXX").utf8CString)
        guard let made = mkdtemp(&template) else {
            throw NotYet(description: "no temporary folder: \(errno)")
        }
        path = String(cString: made)
    }

    deinit { try? FileManager.default.removeItem(atPath: path) }

    func file(_ name: String, _ content: String? = nil) throws -> String {
        let file = path + "/" + name
        if let content { try content.write(toFile: file, atomically: false, encoding: .utf8) }
        return file
    }
}
