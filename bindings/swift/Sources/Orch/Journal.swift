// SPDX-License-Identifier: Apache-2.0
import COrch

/// What ``Journal/begin(_:)`` found under the idempotency key. (A conflict is thrown as `ORCH_ECONFLICT`.)
public struct Begin: OrchConstant {
    public let rawValue: UInt32
    public init(rawValue: UInt32) { self.rawValue = rawValue }

    /// New, or known not applied: dispatch it.
    public static let fresh = Self(ORCH_BEGIN_FRESH)
    /// The recorded result is in the action.
    public static let replay = Self(ORCH_BEGIN_REPLAY)
    /// In flight in this very process: wait for that one.
    public static let attached = Self(ORCH_BEGIN_ATTACHED)
    /// Dispatched earlier, and the outcome is not known: do not dispatch.
    public static let ambiguous = Self(ORCH_BEGIN_AMBIGUOUS)
    /// Same key, other kind or fingerprint: refused.
    public static let conflict = Self(ORCH_BEGIN_CONFLICT)
}

/// A durable record of actions that tells "intended", "dispatched", "observed" and "confirmed" apart. All
/// calls are durable when they return. What is recorded at the same time shares a commit and holds no thread;
/// what looks up, copies or recovers waits for the disk on the journal's thread, never on the caller's.
public actor Journal {
    public struct Options: Sendable {
        /// A small file outside the journal's folder that knows how far the journal got; nil: none.
        public var anchorPath: String?
        /// Read what a dead coordinator wrote, without owning it.
        public var readOnly: Bool
        /// Bytes of a request or result; 0: 1 MiB.
        public var payloadLimit: UInt64
        /// Called right after each record became durable, with its sequence number. It must not call the
        /// library.
        public var onRecord: (@Sendable (UInt64) -> Void)?

        public init(
            anchorPath: String? = nil, readOnly: Bool = false, payloadLimit: UInt64 = 0,
            onRecord: (@Sendable (UInt64) -> Void)? = nil
        ) {
            self.anchorPath = anchorPath
            self.readOnly = readOnly
            self.payloadLimit = payloadLimit
            self.onRecord = onRecord
        }
    }

    /// An intent. Its key is unique in the journal.
    public struct Intent: Sendable {
        /// "notify.send"; 1..63 of [a-z0-9._-]
        public var kind: String
        /// The idempotency key, 1..255 bytes.
        public var key: String
        /// nil: ``Policy/neverRepeat``. The first one stays.
        public var policy: Policy?
        public var request: [UInt8]
        /// What makes two requests the same, at most 64 bytes; nil: SHA-256 of kind and request.
        public var fingerprint: [UInt8]?
        /// Name of a ``Permit`` that a fresh outcome uses up in the same transaction; nil: none is needed.
        public var permit: String?

        public init(
            kind: String, key: String, policy: Policy? = nil, request: [UInt8] = [],
            fingerprint: [UInt8]? = nil, permit: String? = nil
        ) {
            self.kind = kind
            self.key = key
            self.policy = policy
            self.request = request
            self.fingerprint = fingerprint
            self.permit = permit
        }
    }

    nonisolated let handle: Handle

    public nonisolated var unownedExecutor: UnownedSerialExecutor {
        handle.executor.asUnownedSerialExecutor()
    }

    /// Opens or creates. It waits for the disk.
    /// - Parameter context: whose thread it lives on; a ``Broker`` can use only a journal of its own context.
    ///   nil: a thread of its own.
    ///
    /// `ORCH_ELOCKED`: another coordinator owns it (the message names it); `ORCH_ESCHEMA`, `ORCH_ENETFS`,
    /// `ORCH_ECORRUPT`, `ORCH_ENOENT`, `ORCH_ENOSPC`, `ORCH_EPOISONED`, `ORCH_EINVAL`, `ORCH_ESYS`.
    public init(_ path: String, _ options: Options = Options(), on context: Context? = nil)
        async throws(OrchError)
    {
        let home: Context
        if let context { home = context } else { home = try Context() }
        handle = try await home.make(orch_journal_unref) { (_, made) throws(OrchError) in
            try withCMemory { memory throws(OrchError) in
                var opts = orch_journal_opts()
                orch_journal_opts_init(&opts, sizeOf(orch_journal_opts.self))
                opts.flags = options.readOnly ? ORCH_JOURNAL_READ_ONLY : 0
                opts.path = try memory.string(path)
                opts.anchor_path = try memory.string(options.anchorPath)
                opts.payload_limit = options.payloadLimit
                if let onRecord = options.onRecord {
                    opts.on_record = tellRecord
                    opts.userdata = Callback.retained(onRecord)
                    opts.destroy = releaseCallback
                }
                try check { orch_journal_open(&opts, &made, $0) }
            }
        }
    }

    /// One that the library lends.
    init(_ handle: Handle) { self.handle = handle }

    /// This coordinator's generation: rises with each opening for writing.
    public var generation: UInt64 { orch_journal_generation(handle.pointer) }
    /// Of the last durable record.
    public var sequence: UInt64 { orch_journal_sequence(handle.pointer) }
    /// 1 for a journal that was never restored; each restoration starts the next one.
    public var epoch: UInt64 { orch_journal_epoch(handle.pointer) }

    /// Records an intent, or finds what is recorded under the key; one transaction. It can not be taken back:
    /// in a cancelled task it is waited for too.
    ///
    /// `ORCH_ECONFLICT`: same key, other kind or fingerprint; `ORCH_EPERMIT`: the permit is missing, used by
    /// another action, expired, revoked, void, or for something else; `ORCH_ETOOBIG`; `ORCH_ENOSPC`;
    /// `ORCH_EPOISONED`: reopen; `ORCH_ESTATE`: read-only; `ORCH_EINVAL`; `ORCH_ECORRUPT`.
    public func begin(_ intent: Intent) async throws(OrchError) -> (begin: Begin, action: Action) {
        let promise = Promise<(begin: Begin, action: Action)>()
        try withCMemory { memory throws(OrchError) in
            var opts = orch_action_opts()
            orch_action_opts_init(&opts, sizeOf(orch_action_opts.self))
            opts.kind = try memory.string(intent.kind)
            opts.key = try memory.string(intent.key)
            opts.policy = intent.policy?.rawValue ?? 0
            opts.request = memory.bytes(intent.request)
            opts.request_length = intent.request.count
            opts.fingerprint = memory.bytes(intent.fingerprint)
            opts.fingerprint_length = intent.fingerprint?.count ?? 0
            opts.permit = try memory.string(intent.permit)
            try check {
                orch_journal_begin_async(
                    handle.pointer, handle.executor.loop.ctx, &opts, onBegin,
                    Callback.retained(JournalReceiver(promise, handle.executor)), releaseCallback, $0)
            }
        }
        return try await promise.value()
    }

    /// Records something whose record is the whole effect. false: it was recorded before. Errors as for
    /// begin.
    @discardableResult
    public func record(kind: String, key: String, _ payload: [UInt8] = []) async throws(OrchError) -> Bool {
        let promise = Promise<Bool>()
        try withCMemory { memory throws(OrchError) in
            let kind = try memory.string(kind)
            let key = try memory.string(key)
            let start = memory.bytes(payload)
            try check {
                orch_journal_record_async(
                    handle.pointer, handle.executor.loop.ctx, kind, key, start, payload.count, onRecorded,
                    Callback.retained(JournalReceiver(promise, handle.executor)), releaseCallback, $0)
            }
        }
        return try await promise.value()
    }

    /// The action under a key; nil if there is none.
    public func find(_ key: String) throws(OrchError) -> Action? {
        try withCMemory { memory throws(OrchError) in
            let key = try memory.string(key)
            var action: OpaquePointer?
            do throws(OrchError) {
                try check { orch_journal_find(handle.pointer, key, &action, $0) }
            } catch where error.code == .enoent {
                return nil
            }
            return Action(Handle(action!, handle.executor, orch_action_unref))
        }
    }

    /// Walks the actions in order of their intent, at most those whose kind starts with the prefix, until the
    /// function returns false or throws; what it throws is thrown on. It must not wait for anything of the
    /// journal.
    public func each(_ kindPrefix: String? = nil, _ body: (ActionRecord) throws -> Bool) throws {
        var thrown: (any Error)?
        try walk(kindPrefix) { action in
            do { return try body(ActionRecord(copying: action)) } catch {
                thrown = error
                return false
            }
        }
        if let thrown { throw thrown }
    }

    /// All actions whose kind starts with the prefix, in order of their intent.
    public func actions(_ kindPrefix: String? = nil) throws(OrchError) -> [Action] {
        var found: [Action] = []
        try walk(kindPrefix) { action in
            found.append(Action(Handle(orch_action_ref(action), handle.executor, orch_action_unref)))
            return true
        }
        return found
    }

    /// What all of the set members say is asked for.
    public struct Query: Sendable {
        public var kindPrefix: String?
        public var keyPrefix: String?
        /// Any of these; none: all.
        public var states: [ActionState] = []
        /// The last transition was then or later, was before: in ms since 1970; 0: at any time.
        public var updatedFromMs: Int64 = 0
        public var updatedBeforeMs: Int64 = 0
        public var newestFirst = false
        /// For the next page: id of the last one of this page; 0: the first page.
        public var afterId: UInt64 = 0
        /// How many at most; 0: all.
        public var limit: UInt32 = 0

        public init(kindPrefix: String? = nil, keyPrefix: String? = nil, states: [ActionState] = []) {
            self.kindPrefix = kindPrefix
            self.keyPrefix = keyPrefix
            self.states = states
        }
    }

    /// The actions that a query asks for, in order of their intent.
    public func actions(_ query: Query) throws(OrchError) -> [Action] {
        var found: [Action] = []
        try withCallback { (action: OpaquePointer) in
            found.append(Action(Handle(orch_action_ref(action), handle.executor, orch_action_unref)))
            return true
        } call: { userdata throws(OrchError) in
            try withCMemory { memory throws(OrchError) in
                var opts = orch_query_opts()
                orch_query_opts_init(&opts, sizeOf(orch_query_opts.self))
                opts.flags = query.newestFirst ? ORCH_QUERY_NEWEST_FIRST : 0
                opts.kind_prefix = try memory.string(query.kindPrefix)
                opts.key_prefix = try memory.string(query.keyPrefix)
                // What no bit stands for is refused by the library.
                opts.states = query.states.reduce(0) { $0 | (1 << min($1.rawValue, 31)) }
                opts.limit = query.limit
                opts.updated_from_ms = query.updatedFromMs
                opts.updated_before_ms = query.updatedBeforeMs
                opts.after_id = query.afterId
                try check { orch_journal_query(handle.pointer, &opts, walkOn, userdata, $0) }
            }
        }
        return found
    }

    private func walk(_ kindPrefix: String?, _ body: (OpaquePointer) -> Bool) throws(OrchError) {
        try withCallback(body) { userdata throws(OrchError) in
            try withCMemory { memory throws(OrchError) in
                let prefix = try memory.string(kindPrefix)
                try check { orch_journal_each(handle.pointer, prefix, walkOn, userdata, $0) }
            }
        }
    }

    /// Checks the hash chain, every action and payload, SQLite's pages and the anchor. Returns the number of
    /// records. `ORCH_ECORRUPT` names the first record that does not fit.
    @discardableResult
    public func verify() throws(OrchError) -> UInt64 {
        var records: UInt64 = 0
        try check { orch_journal_verify(handle.pointer, &records, $0) }
        return records
    }
}

func tellRecord(_ userdata: UnsafeMutableRawPointer?, _ sequence: UInt64) {
    Callback<@Sendable (UInt64) -> Void>.body(userdata)(sequence)
}

/// For walks: a callback that lives as long as the call.
func withCallback<Argument>(
    _ body: (Argument) -> Bool, call: (UnsafeMutableRawPointer) throws(OrchError) -> Void
) throws(OrchError) {
    try withoutActuallyEscaping(body) { body throws(OrchError) in
        let callback = Callback(body)
        try call(Unmanaged.passUnretained(callback).toOpaque())
        withExtendedLifetime(callback) {}
    }
}

private func walkOn(_ userdata: UnsafeMutableRawPointer?, _ action: OpaquePointer?) -> Int32 {
    // 1 ends the walk and is no error.
    Callback<(OpaquePointer) -> Bool>.body(userdata)(action!) ? 0 : 1
}

/// What waits for a commit. It keeps the context's thread until then.
final class JournalReceiver<Value: Sendable>: Sendable {
    private let promise: Promise<Value>
    private let executor: OrchExecutor

    init(_ promise: Promise<Value>, _ executor: OrchExecutor) {
        self.promise = promise
        self.executor = executor
    }

    deinit { promise.fail(OrchError(.eclosed, "the journal ended before it could say what it recorded")) }

    func settle(_ error: OpaquePointer?, _ value: (OrchExecutor) -> Value) {
        if let error { promise.fail(OrchError(copying: error)) } else { promise.succeed(value(executor)) }
    }
}

private func onBegin(
    _ userdata: UnsafeMutableRawPointer?, _ outcome: UInt32, _ action: OpaquePointer?, _ error: OpaquePointer?
) {
    Callback<JournalReceiver<(begin: Begin, action: Action)>>.body(userdata).settle(error) { executor in
        (Begin(outcome), Action(Handle(orch_action_ref(action!), executor, orch_action_unref)))
    }
}

private func onRecorded(_ userdata: UnsafeMutableRawPointer?, _ fresh: Int32, _ error: OpaquePointer?) {
    Callback<JournalReceiver<Bool>>.body(userdata).settle(error) { _ in fresh != 0 }
}
