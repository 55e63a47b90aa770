// SPDX-License-Identifier: Apache-2.0
import COrch

/// What a principal may do.
public struct Grant: Sendable {
    /// "ai.anthropic", "ai.openai", "notify.send".
    public var operation: String
    /// An explicit deny: wins over every allow.
    public var deny: Bool
    /// notify.send: the URL that is POSTed to.
    public var url: String?
    /// And the one that is asked whether a key was applied: "{key}" in it is replaced; 200: applied, 404:
    /// not. nil: the outcome stays unknown after a failure.
    public var probeUrl: String?
    /// 0: no limit.
    public var maxUses: UInt64 = 0
    /// In ms since 1970; 0: never.
    public var expiresAtMs: Int64 = 0
    /// Prefixed to the client's Idempotency-Key.
    public var keyPrefix: String?

    public init(_ operation: String, deny: Bool = false, url: String? = nil, probeUrl: String? = nil) {
        self.operation = operation
        self.deny = deny
        self.url = url
        self.probeUrl = probeUrl
    }

    func fill(_ opts: inout orch_grant_opts, _ memory: CMemory) throws(OrchError) {
        orch_grant_opts_init(&opts, sizeOf(orch_grant_opts.self))
        opts.flags = deny ? ORCH_GRANT_DENY : 0
        opts.operation = try memory.string(operation)
        opts.url = try memory.string(url)
        opts.probe_url = try memory.string(probeUrl)
        opts.max_uses = maxUses
        opts.expires_at_ms = expiresAtMs
        opts.key_prefix = try memory.string(keyPrefix)
    }
}

/// Who asks the broker: one attempt of one task, with a generation. Without a grant everything it asks for is
/// refused.
public actor Principal {
    /// Tells principals of a broker apart, while they live.
    public struct ID: Hashable, Sendable {
        private let value: Int
        init(_ principal: OpaquePointer?) { value = Int(bitPattern: principal) }
    }

    public struct Options: Sendable {
        public var generation: UInt64
        /// Its own; 0: no limit of its own.
        public var budget: Spending

        public init(generation: UInt64 = 0, budget: Spending = Spending()) {
            self.generation = generation
            self.budget = budget
        }
    }

    nonisolated let handle: Handle
    public nonisolated let name: String

    public nonisolated var unownedExecutor: UnownedSerialExecutor {
        handle.executor.asUnownedSerialExecutor()
    }

    /// - Parameter name: "run-1/T2/1": in the journal and in refusals.
    public init(_ broker: Broker, _ name: String, _ options: Options = Options()) async throws(OrchError) {
        self.name = name
        handle = try await broker.principal(name, options)
    }

    public nonisolated var id: ID { ID(handle.pointer) }

    public func grant(_ grant: Grant) throws(OrchError) {
        try withCMemory { memory throws(OrchError) in
            var opts = orch_grant_opts()
            try grant.fill(&opts, memory)
            try check { orch_principal_grant(handle.pointer, &opts, $0) }
        }
    }

    /// Makes the principal's end part of the scope's: it is revoked when that begins, and the certificate says what
    /// was cut. `ORCH_ECLOSED`: it is revoked, or the scope's end has begun.
    public func attach(to scope: Scope) throws(OrchError) {
        try handle.requireSameContext(as: scope.handle, "the scope")
        try check { orch_principal_attach(handle.pointer, scope.handle.pointer, $0) }
    }

    /// Ends the principal and waits for it: listener closed, connections cut, operations in flight settled or
    /// unknown. It can not be taken back: in a cancelled task it goes on too.
    @discardableResult
    public func revoke() async throws(OrchError) -> (settled: Int, unknown: Int) {
        let promise = Promise<(settled: Int, unknown: Int)>()
        try check {
            orch_principal_revoke(
                handle.pointer, onRevoke, Callback.retained(RevokeReceiver(promise)), releaseCallback, $0)
        }
        return try await promise.value()
    }

    /// Settled so far.
    public var spent: Spending {
        var spent = Spending()
        orch_principal_spent(handle.pointer, &spent.requests, &spent.tokens, &spent.microUsd)
        return spent
    }

    /// An operation was refused for budget.
    public var budgetHit: Bool { orch_principal_budget_hit(handle.pointer) > 0 }
}

extension Broker {
    fileprivate func principal(_ name: String, _ options: Principal.Options) throws(OrchError) -> Handle {
        try withCMemory { memory throws(OrchError) in
            var opts = orch_principal_opts()
            orch_principal_opts_init(&opts, sizeOf(orch_principal_opts.self))
            opts.name = try memory.string(name)
            opts.generation = options.generation
            opts.max_requests = options.budget.requests
            opts.max_tokens = options.budget.tokens
            opts.max_micro_usd = options.budget.microUsd
            var principal: OpaquePointer?
            try check { orch_principal_new(handle.pointer, &opts, &principal, $0) }
            return Handle(principal!, handle.executor, orch_principal_unref)
        }
    }
}

private final class RevokeReceiver: Sendable {
    let promise: Promise<(settled: Int, unknown: Int)>
    init(_ promise: Promise<(settled: Int, unknown: Int)>) { self.promise = promise }
    deinit { promise.fail(OrchError(.eclosed, "the broker ended before the principal's end was known")) }
}

private func onRevoke(
    _ userdata: UnsafeMutableRawPointer?, _ principal: OpaquePointer?, _ settled: UInt32, _ unknown: UInt32
) {
    Callback<RevokeReceiver>.body(userdata).promise.succeed((Int(settled), Int(unknown)))
}
