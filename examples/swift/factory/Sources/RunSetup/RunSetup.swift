// SPDX-License-Identifier: Apache-2.0
import Orch

/// What does the work of a run, and at whose cost. It holds the key, so it is in no state folder: a run that
/// is resumed needs it again.
public struct RunSetup: Sendable {
    public enum Provider: String, Sendable, CaseIterable {
        case anthropic, openai

        public var address: String {
            switch self {
            case .anthropic: "https://api.anthropic.com"
            case .openai: "https://api.openai.com"
            }
        }
    }

    public enum Worker: Hashable, Sendable {
        /// The executor that comes with the library.
        case mini
        /// A program, by its absolute path, or a shell command; it gets the packet on its standard input.
        case command(String)
    }

    /// nil: the worker needs none.
    public var provider: Provider?
    /// nil: the provider's own.
    public var baseURL: String?
    /// It stays in this process: no sandbox sees it.
    public var key: String?
    /// nil: the worker's own.
    public var model: String?
    public var worker = Worker.mini
    /// By operation ("notify.send"), the address that tasks whose plan asks for it may send to. ADDRESS/KEY
    /// is asked whether a message arrived.
    public var grants: [String: String] = [:]
    /// Of a whole new run.
    public var budget = Spending()
    /// Tasks at once in a new run; 0: 2.
    public var jobs: UInt32 = 0

    public init(provider: Provider? = nil) { self.provider = provider }

    /// The line that the report has for it.
    public var description: String {
        let name = if case .command = worker { "command" } else { "mini" }
        let cap = budget.tokens > 0 ? "\(budget.tokens) tokens" : "none"
        return "executor \(name), provider \(provider?.rawValue ?? "none"), model \(model ?? "default"), "
            + "isolation process, cap \(cap)"
    }

    /// Makes the pipeline of a run, ready to be started. Questions wait until they are answered.
    /// - Parameter idea: nil: the folder holds a run that is to go on.
    public func open(_ folder: String, idea: String?, in context: Context) async throws(OrchError) -> Pipeline
    {
        var options =
            idea.map { Pipeline.Options(stateDir: folder, idea: $0) } ?? Pipeline.Options(resuming: folder)
        // Outside of the folder, so that a folder that was put back as a whole is noticed.
        options.anchorPath = folder + ".anchor"
        options.answerTimeoutMs = -1
        options.budget = budget
        options.jobs = jobs
        options.description = description
        let pipeline = try await Pipeline(context, options)
        try await prepare(pipeline, in: context)
        return pipeline
    }

    private func prepare(_ pipeline: Pipeline, in context: Context) async throws(OrchError) {
        if let provider {
            var upstream = Upstream(baseURL ?? provider.address)
            if let key {
                upstream.credential = .apiKey
                upstream.secret = key
            }
            try await pipeline.broker.setUpstream("ai.\(provider.rawValue)", upstream)
        }
        try await pipeline.setExecutor(Executor(context, program))
        for (operation, address) in grants {
            try await pipeline.allow(Grant(operation, url: address, probeUrl: address + "/{key}"))
        }
    }

    private var program: Executor.Program {
        switch worker {
        case .mini: .mini(api: provider == .openai ? .openai : .anthropic, model: model)
        case .command(let command): .command(command.hasPrefix("/") ? [command] : ["/bin/sh", "-c", command])
        }
    }
}
