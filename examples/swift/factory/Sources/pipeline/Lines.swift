// SPDX-License-Identifier: Apache-2.0
import Foundation
import Orch

func say(_ line: String, to file: FileHandle = .standardOutput) {
    // A reader that went away does not end the run.
    try? file.write(contentsOf: Data((line + "\n").utf8))
}

/// What a person wants to know of an event; nil: nothing.
func describe(_ event: PipelineEvent) -> String? {
    func text(_ member: String) -> String { event[member]?.string ?? "" }
    func number(_ member: String) -> Int64 { event[member]?.integer ?? 0 }
    let because = text("reason").isEmpty ? "" : ": " + text("reason")
    let subject = ["", "-"].contains(text("task")) ? text("stage") : text("task")
    switch event.name {
    case "run": return "run  \(text("state"))\(because)"
    case "stage": return "\(subject)  \(text("stage")) \(text("state"))"
    case "question": return "? \(text("id")): \(text("text")) [\(text("recommended"))]"
    case "answer": return "\(text("id"))  \(text("text")) (\(text("by")))"
    case "task": return "\(subject)  \(text("state"))\(because)"
    case "attempt" where text("state") == "ENDED":
        return "\(subject)  attempt \(number("attempt")) \(text("end")), certificate \(text("verdict"))"
    case "verify":
        let result =
            text("error").isEmpty
            ? "\(number("passed")) checks pass, \(number("failed")) fail" : text("error")
        return "\(subject.isEmpty ? "all" : subject)  \(text("purpose")): \(result)"
    case "operation" where !text("code").isEmpty:
        return "broker  \(text("operation")) refused: \(text("code"))"
    case "overlay": return "run  \(text("overlay"))\(event["on"]?.bool == true ? "" : " over")\(because)"
    case "end":
        let product = text("product").isEmpty ? "none" : text("product")
        return "\(text("state"))\(because)\n  report   \(text("report"))\n  product  \(product)"
    default: return nil
    }
}
