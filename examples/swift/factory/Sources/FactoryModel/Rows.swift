// SPDX-License-Identifier: Apache-2.0
import Observation
import Orch

/// A question of the planner. Its answer is the user's to change until the questions are answered.
@MainActor @Observable
public final class Question: Identifiable {
    public nonisolated let id: String
    public let text: String
    public let recommended: String
    /// Empty: any text.
    public let options: [String]
    /// "choice", "text", "credentials", "money", "irreversible".
    public let kind: String
    /// "" takes what is recommended.
    public var answer = ""
    /// "user" or "default"; nil: not answered yet.
    public internal(set) var answeredBy: String?

    init(_ value: JSON) {
        id = value["id"]?.string ?? ""
        text = value["text"]?.string ?? ""
        recommended = value["recommended"]?.string ?? ""
        options = value["options"]?.array?.compactMap(\.string) ?? []
        kind = value["kind"]?.string ?? ""
        answer = value["answer"]?.string ?? ""
        answeredBy = value["by"]?.string
    }
}

/// A step that the run as a whole goes through, before and after the tasks.
@MainActor @Observable
public final class Stage: Identifiable {
    public enum State: String, Sendable { case pending, running, judged, sentBack, done }

    public nonisolated let id: String
    public internal(set) var state = State.pending
    public internal(set) var attempts: Int64 = 0
    /// What its agent said last.
    public internal(set) var lastLine = ""

    init(_ id: String) { self.id = id }
}

/// A task of the plan.
@MainActor @Observable
public final class PlannedTask: Identifiable {
    public enum State: String, Sendable {
        case pending, ready, leased, running, submitted, verifying, verified, merged
        case stalled, rejected, conflict, blocked
    }

    public nonisolated let id: String
    public internal(set) var title = ""
    public internal(set) var state = State.pending
    public internal(set) var attempts: Int64 = 0
    /// What its agent said last.
    public internal(set) var lastLine = ""
    /// Why it is in that state, or "".
    public internal(set) var reason = ""

    init(_ id: String) { self.id = id }

    func update(_ value: JSON) {
        title = value["title"]?.string ?? title
        if let name = value["state"]?.string, let state = State(rawValue: name.lowercased()) {
            self.state = state
        }
        attempts = value["attempt"]?.integer ?? value["attempts"]?.integer ?? attempts
        reason = value["reason"]?.string ?? ""
    }
}

/// How a run ended.
public struct Report: Hashable, Sendable {
    public let state: RunState
    public let reason: String
    /// Path of report.html; nil: there is none.
    public let path: String?
    /// Path of the product, a git repository; nil: nothing was delivered.
    public let product: String?
}
