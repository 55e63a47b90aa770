// SPDX-License-Identifier: Apache-2.0
import COrch

/// What a record of a journal is about.
public struct RecordType: OrchConstant, CustomStringConvertible {
    public let rawValue: UInt32
    public init(rawValue: UInt32) { self.rawValue = rawValue }

    /// A coordinator opened the journal.
    public static let generation = Self(ORCH_RECORD_GENERATION)
    /// A transition, or an action that was pruned.
    public static let action = Self(ORCH_RECORD_ACTION)
    public static let permit = Self(ORCH_RECORD_PERMIT)
    public static let timer = Self(ORCH_RECORD_TIMER)
    /// Of a person, about an action.
    public static let decision = Self(ORCH_RECORD_DECISION)
    /// The journal was restored from a backup.
    public static let epoch = Self(ORCH_RECORD_EPOCH)

    /// "action", "permit", ...
    public var description: String { string(orch_record_type_name(rawValue)) }
}

extension Journal {
    /// What happened, and was written down. A copy.
    public struct Record: Hashable, Sendable {
        /// What the record made.
        public enum State: Hashable, Sendable {
            case action(ActionState)
            case permit(PermitState)
            case timer(TimerState)
            case decision(Decision)
        }

        /// 1, 2, 3, ...
        public let sequence: UInt64
        /// In ms since 1970.
        public let atMs: Int64
        /// Of the coordinator that wrote it.
        public let generation: UInt64
        public let type: RecordType
        /// Id of the action, permit, timer or decision; the generation or the epoch itself.
        public let subject: UInt64
        /// Key of the action (also of a decision's), name of the permit or timer; or "".
        public let name: String
        /// Of the action or permit; or "".
        public let kind: String
        /// nil for a generation or an epoch.
        public let state: State?
        /// "DISPATCHED", "USED", "PENDING", "NOT_APPLIED"; or "".
        public let stateName: String
        /// Of the action; round of the timer; or 0.
        public let attempt: UInt32

        fileprivate init(copying record: OpaquePointer) {
            sequence = orch_record_sequence(record)
            atMs = orch_record_at_ms(record)
            generation = orch_record_generation(record)
            type = RecordType(orch_record_type(record))
            subject = orch_record_subject(record)
            name = string(orch_record_name(record))
            kind = string(orch_record_kind(record))
            let state = orch_record_state(record)
            self.state =
                switch type {
                case .action: .action(ActionState(state))
                case .permit: .permit(PermitState(state))
                case .timer: .timer(TimerState(state))
                case .decision: .decision(Decision(state))
                default: nil
                }
            stateName = string(orch_record_state_name(record))
            attempt = orch_record_attempt(record)
        }
    }

    /// Walks the records after that one, in their order, until the function returns false or throws; what it
    /// throws is thrown on. It must not wait for anything of the journal.
    public func eachRecord(after sequence: UInt64 = 0, _ body: (Record) throws -> Bool) throws {
        var thrown: (any Error)?
        try withCallback { (record: OpaquePointer) in
            do { return try body(Record(copying: record)) } catch {
                thrown = error
                return false
            }
        } call: { userdata throws(OrchError) in
            try check { orch_journal_records(handle.pointer, sequence, onRead, userdata, $0) }
        }
        if let thrown { throw thrown }
    }

    /// The records after that one, at most so many (0: all), in their order.
    public func records(after sequence: UInt64 = 0, limit: Int = 0) throws(OrchError) -> [Record] {
        var found: [Record] = []
        try withCallback { (record: OpaquePointer) in
            found.append(Record(copying: record))
            return found.count != limit
        } call: { userdata throws(OrchError) in
            try check { orch_journal_records(handle.pointer, sequence, onRead, userdata, $0) }
        }
        return found
    }

    /// The records after that one, then each new one when it is durable, each once and in order; nil: only
    /// new ones. It ends with its reader, and keeps the journal open until then; a poisoned journal tells
    /// nothing more. What the reader does not take is kept for it.
    public func watch(after sequence: UInt64? = 0) throws(OrchError) -> AsyncStream<Record> {
        let (stream, continuation) = AsyncStream<Record>.makeStream()
        let body: @Sendable (OpaquePointer) -> Bool = { record in
            if case .terminated = continuation.yield(Record(copying: record)) { false } else { true }
        }
        let watch = try made(handle.executor, orch_watch_unref) {
            orch_journal_watch(
                handle.pointer, handle.executor.loop.ctx, sequence ?? UInt64.max, onWatched,
                Callback.retained(body), releaseCallback, $0, $1)
        }
        continuation.onTermination = { _ in withExtendedLifetime(watch) {} }
        return stream
    }
}

private func onRead(_ userdata: UnsafeMutableRawPointer?, _ record: OpaquePointer?) -> Int32 {
    Callback<(OpaquePointer) -> Bool>.body(userdata)(record!) ? 0 : 1
}

private func onWatched(_ userdata: UnsafeMutableRawPointer?, _ record: OpaquePointer?) -> Int32 {
    Callback<@Sendable (OpaquePointer) -> Bool>.body(userdata)(record!) ? 0 : 1
}
