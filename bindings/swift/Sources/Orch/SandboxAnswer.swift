// SPDX-License-Identifier: Apache-2.0
import COrch

/// Whether a path inside is denied, and by which rule.
public struct SandboxAnswer: Equatable, Sendable, CustomStringConvertible {
    /// What of the access asked for is denied; empty: nothing.
    public let denied: PathAccess
    /// The one that decided, as it was given ("deny /work/.git", with NAME:LINE of a policy), or "": none does.
    public let rule: String
    /// A sentence for people.
    public let text: String

    public var description: String { text }

    fileprivate init(copying answer: OpaquePointer) {
        denied = PathAccess(rawValue: orch_sandbox_answer_denied(answer))
        rule = string(orch_sandbox_answer_rule(answer))
        text = string(orch_sandbox_answer_text(answer))
    }
}

extension Sandbox {
    /// Would `path` (inside, absolute) be denied? From the rules, before the start too: nothing is tried, and links are
    /// not followed. `access`: read, write, exec.
    public func why(_ path: String, _ access: PathAccess = .read) throws(OrchError) -> SandboxAnswer {
        try withCMemory { memory throws(OrchError) in
            let path = try memory.string(path)
            var answer: OpaquePointer?
            try check { orch_sandbox_why(handle.pointer, path, access.rawValue, &answer, $0) }
            defer { orch_sandbox_answer_unref(answer) }
            return SandboxAnswer(copying: answer!)
        }
    }
}
