// SPDX-License-Identifier: Apache-2.0
import Foundation
import RunSetup

let usage = """
    usage: pipeline IDEA | --idea-file F | --resume    from an idea to a verified product
        --state DIR                       the run's folder
        --provider anthropic|openai [--base-url URL] [--key-file F] [--model NAME] [--max-tokens N]
        --executor mini|command [--executor-cmd CMD] [--jobs N] [--grant OPERATION=URL]
        --answers F | --yes               answer the questions; take what is recommended
        --json                            events as they are
    """

/// Bad arguments.
struct Usage: Error {
    let text: String
    init(_ text: String) { self.text = text }
}

struct Arguments {
    var setup = RunSetup()
    var idea: String?
    var state = ""
    var answers: String?
    var resume = false, yes = false, json = false

    init(_ words: [String], _ environment: [String: String]) throws {
        var rest = words[...]
        var values: [String: String] = [:]
        while let word = rest.popFirst() {
            switch word {
            case "--resume": resume = true
            case "--yes": yes = true
            case "--json": json = true
            case _ where !word.hasPrefix("-") && idea == nil: idea = word
            case _ where usage.contains("\(word) ") && word.hasPrefix("--"):
                guard let value = rest.popFirst() else { throw Usage("\(word): its value is missing") }
                if word == "--grant" { try grant(value) } else { values[word] = value }
            default: throw Usage("\(word): unknown, or one too many\n\(usage)")
            }
        }
        if let file = values["--idea-file"] { idea = try text(of: file).trimmingCharacters(in: .newlines) }
        guard (idea ?? "").isEmpty == resume else { throw Usage("an idea, or --resume\n\(usage)") }
        guard let folder = values["--state"] else { throw Usage("--state DIR is missing") }
        state = URL(fileURLWithPath: folder).path
        answers = try values["--answers"].map(text(of:))
        try choose(values, environment)
    }

    private mutating func grant(_ value: String) throws {
        guard let equals = value.firstIndex(of: "=") else { throw Usage("--grant OPERATION=URL") }
        setup.grants[String(value[..<equals])] = String(value[value.index(after: equals)...])
    }

    private mutating func choose(_ values: [String: String], _ environment: [String: String]) throws {
        setup.provider = try values["--provider"].map(provider(named:))
        switch (values["--executor"] ?? "mini", values["--executor-cmd"]) {
        case ("mini", nil): if setup.provider == nil { throw Usage("the executor mini needs --provider") }
        case ("command", let command?): setup.worker = .command(command)
        default: throw Usage("--executor mini, or --executor command with --executor-cmd CMD")
        }
        guard let tokens = UInt64(values["--max-tokens"] ?? "0"), let jobs = UInt32(values["--jobs"] ?? "0")
        else { throw Usage("--max-tokens and --jobs take a number") }
        setup.budget.tokens = tokens
        setup.jobs = jobs
        setup.baseURL = values["--base-url"]
        setup.model = values["--model"]
        guard let provider = setup.provider else { return }
        if tokens == 0 && !resume && isatty(STDIN_FILENO) == 0 {
            throw Usage("without a cap (--max-tokens N) a provider is not used where nobody watches")
        }
        setup.key = try key(provider, values["--key-file"], environment)
    }
}

private func provider(named name: String) throws -> RunSetup.Provider {
    guard let provider = RunSetup.Provider(rawValue: name) else { throw Usage("--provider anthropic|openai") }
    return provider
}

private func text(of path: String) throws -> String {
    guard let text = try? String(contentsOfFile: path, encoding: .utf8) else {
        throw Usage("\(path) is not there, or no text")
    }
    return text
}

private func key(
    _ provider: RunSetup.Provider, _ file: String?, _ environment: [String: String]
) throws -> String {
    let variable = provider.rawValue.uppercased() + "_API_KEY"
    let mode = try file.map {
        try FileManager.default.attributesOfItem(atPath: $0)[.posixPermissions] as? Int
    }
    if let mode, (mode ?? 0o777) & 0o77 != 0 { throw Usage("--key-file: others can read it; chmod 600") }
    let key = try file.map(text(of:)) ?? environment[variable] ?? ""
    guard let line = key.split(whereSeparator: \.isNewline).first else {
        throw Usage("no key: set \(variable), or --key-file F (mode 0600)")
    }
    return String(line)
}
