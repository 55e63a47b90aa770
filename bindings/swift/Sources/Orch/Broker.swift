// SPDX-License-Identifier: Apache-2.0
import COrch

public struct Credential: OrchConstant {
    public let rawValue: UInt32
    public init(rawValue: UInt32) { self.rawValue = rawValue }

    public static let none = Self(ORCH_CREDENTIAL_NONE)
    /// Anthropic: x-api-key; OpenAI: Authorization: Bearer.
    public static let apiKey = Self(ORCH_CREDENTIAL_API_KEY)
    /// Authorization: Bearer.
    public static let bearer = Self(ORCH_CREDENTIAL_BEARER)
}

public struct OperationEvent: OrchConstant {
    public let rawValue: UInt32
    public init(rawValue: UInt32) { self.rawValue = rawValue }

    public static let refused = Self(ORCH_OPERATION_REFUSED)
    public static let dispatched = Self(ORCH_OPERATION_DISPATCHED)
    public static let observed = Self(ORCH_OPERATION_OBSERVED)
    /// Upstream not reached: known not applied.
    public static let failed = Self(ORCH_OPERATION_FAILED)
    public static let unknown = Self(ORCH_OPERATION_UNKNOWN)
}

/// Requests, tokens, and money in millionths of a US dollar. As a limit 0 is none.
public struct Spending: Hashable, Sendable {
    public var requests: UInt64
    public var tokens: UInt64
    public var microUsd: UInt64

    public init(requests: UInt64 = 0, tokens: UInt64 = 0, microUsd: UInt64 = 0) {
        self.requests = requests
        self.tokens = tokens
        self.microUsd = microUsd
    }
}

/// Where an operation type goes, and with which credential.
public struct Upstream: Sendable {
    /// "https://api.anthropic.com": scheme, host, port, path prefix.
    public var baseUrl: String
    public var credential: Credential
    /// Stays on this side; scrubbed from what is logged or sent back.
    public var secret: String?
    /// In millionths of a US dollar per million tokens. Both 0: no price is known, and a principal with a
    /// money budget is refused.
    public var inputPriceMicroUsdPerMtok: UInt64 = 0
    public var outputPriceMicroUsdPerMtok: UInt64 = 0
    /// Assumed for the reservation when the request has no limit; 0: 32000.
    public var maxOutputTokens: UInt32 = 0

    public init(_ baseUrl: String, credential: Credential = .none, secret: String? = nil) {
        self.baseUrl = baseUrl
        self.credential = credential
        self.secret = secret
    }
}

/// One step of one operation.
public struct Operation: Hashable, Sendable {
    /// Name of who asked.
    public let principal: Principal.ID
    /// "ai.anthropic", ...
    public let operation: String
    public let event: OperationEvent
    /// Refusal code ("no_grant", "budget_tokens", "upstream_unreachable", ...) or "".
    public let code: String
    public let httpStatus: Int32
    /// From the provider's structured headers on 429, else nil.
    public let quotaResetsAtMs: Int64?
}

/// The one door out of a sandbox: plain HTTP to a listener, the first path segment names the operation. Each
/// is checked (principal, grant, budget, destination), gets its credential last, and is journalled before it
/// is sent. See orch_broker(3).
///
/// When the last reference is dropped, listeners and connections close; operations in flight become unknown.
public actor Broker {
    public struct Options: Sendable {
        /// To connect upstream; 0: 5000.
        public var connectTimeoutMs: UInt32
        /// Without a byte from upstream; 0: 300000.
        public var idleTimeoutMs: UInt32

        public init(connectTimeoutMs: UInt32 = 0, idleTimeoutMs: UInt32 = 0) {
            self.connectTimeoutMs = connectTimeoutMs
            self.idleTimeoutMs = idleTimeoutMs
        }
    }

    nonisolated let handle: Handle

    public nonisolated var unownedExecutor: UnownedSerialExecutor {
        handle.executor.asUnownedSerialExecutor()
    }

    /// With a journal of the same context (`Journal(path, on: context)`).
    public init(_ context: Context, journal: Journal, _ options: Options = Options()) async throws(OrchError)
    {
        guard journal.handle.executor === context.executor else {
            throw OrchError(.einval, "the journal belongs to another context: Journal(path, on: context)")
        }
        try await self.init(context, options, journal, nil)
    }

    /// With a journal that it keeps by itself.
    public init(_ context: Context, journalPath: String, _ options: Options = Options())
        async throws(OrchError)
    {
        try await self.init(context, options, nil, journalPath)
    }

    private init(
        _ context: Context, _ options: Options, _ journal: Journal?, _ journalPath: String?
    ) async throws(OrchError) {
        handle = try await context.make(orch_broker_unref) { (ctx, made) throws(OrchError) in
            try withCMemory { memory throws(OrchError) in
                var opts = orch_broker_opts()
                orch_broker_opts_init(&opts, sizeOf(orch_broker_opts.self))
                opts.journal = journal?.handle.pointer
                opts.journal_path = try memory.string(journalPath)
                opts.connect_timeout_ms = options.connectTimeoutMs
                opts.idle_timeout_ms = options.idleTimeoutMs
                try check { orch_broker_new(ctx, &opts, &made, $0) }
            }
        }
    }

    /// One that the library lends.
    init(_ handle: Handle) { self.handle = handle }

    /// Where an operation type ("ai.anthropic", "ai.openai") goes. `ORCH_EINVAL`: malformed URL, user
    /// information in it, scheme other than http and https; `ORCH_ENOENT`: unknown operation.
    public func setUpstream(_ operation: String, _ upstream: Upstream) throws(OrchError) {
        try withCMemory { memory throws(OrchError) in
            var opts = orch_upstream_opts()
            orch_upstream_opts_init(&opts, sizeOf(orch_upstream_opts.self))
            opts.base_url = try memory.string(upstream.baseUrl)
            opts.credential = upstream.credential.rawValue
            opts.secret = try memory.string(upstream.secret)
            opts.input_price_micro_usd_per_mtok = upstream.inputPriceMicroUsdPerMtok
            opts.output_price_micro_usd_per_mtok = upstream.outputPriceMicroUsdPerMtok
            opts.max_output_tokens = upstream.maxOutputTokens
            let operation = try memory.string(operation)
            try check { orch_broker_set_upstream(handle.pointer, operation, &opts, $0) }
        }
    }

    /// One more budget, shared by all principals.
    public func setBudget(_ budget: Spending) throws(OrchError) {
        try check {
            orch_broker_set_budget(handle.pointer, budget.requests, budget.tokens, budget.microUsd, $0)
        }
    }

    /// What was spent before, e.g. by an earlier instance of the run.
    public func addSpent(_ spent: Spending) throws(OrchError) {
        try check { orch_broker_add_spent(handle.pointer, spent.requests, spent.tokens, spent.microUsd, $0) }
    }

    /// Settled so far.
    public var spent: Spending {
        var spent = Spending()
        orch_broker_spent(handle.pointer, &spent.requests, &spent.tokens, &spent.microUsd)
        return spent
    }

    /// Serves clients that connect to the listening socket (duplicated) as that principal. `ORCH_EINVAL`: not
    /// a listening stream socket; `ORCH_ECLOSED`: the principal is revoked.
    public func addListener(_ fd: Int32, as principal: Principal) throws(OrchError) {
        try handle.requireSameContext(as: principal.handle, "the principal")
        try check { orch_broker_add_listener(handle.pointer, fd, principal.handle.pointer, $0) }
    }

    /// The receiver of each step of each operation, on the context's thread; it replaces the one before. A
    /// pipeline's broker has the pipeline as its receiver: see ``Pipeline/events``.
    public func onOperation(_ receiver: @escaping @Sendable (Operation) -> Void) throws(OrchError) {
        try check {
            orch_broker_on_operation(
                handle.pointer, tellOperation, Callback.retained(receiver), releaseCallback, $0)
        }
    }

    /// The same as a stream for one reader, which ends with the broker or with the next receiver.
    public func operations() throws(OrchError) -> AsyncStream<Operation> {
        let (stream, continuation) = AsyncStream<Operation>.makeStream()
        let finish = AtTheEnd { continuation.finish() }
        try onOperation { operation in
            _ = finish
            continuation.yield(operation)
        }
        return stream
    }
}

/// Does something when it is dropped.
private final class AtTheEnd: Sendable {
    private let body: @Sendable () -> Void
    init(_ body: @escaping @Sendable () -> Void) { self.body = body }
    deinit { body() }
}

private func tellOperation(
    _ userdata: UnsafeMutableRawPointer?, _ principal: OpaquePointer?, _ operation: UnsafePointer<CChar>?,
    _ event: UInt32, _ code: UnsafePointer<CChar>?, _ httpStatus: Int32, _ quotaResetsAtMs: Int64
) {
    Callback<@Sendable (Operation) -> Void>.body(userdata)(
        Operation(
            principal: Principal.ID(principal), operation: string(operation), event: OperationEvent(event),
            code: string(code), httpStatus: httpStatus,
            quotaResetsAtMs: quotaResetsAtMs == 0 ? nil : quotaResetsAtMs))
}
