// SPDX-License-Identifier: Apache-2.0
import COrch

public struct PermitState: OrchConstant, CustomStringConvertible {
    public let rawValue: UInt32
    public init(rawValue: UInt32) { self.rawValue = rawValue }

    public static let issued = Self(ORCH_PERMIT_ISSUED)
    /// An action has it.
    public static let used = Self(ORCH_PERMIT_USED)
    /// Found expired when it was asked for: a clock that steps back brings nothing back.
    public static let expired = Self(ORCH_PERMIT_EXPIRED)
    public static let revoked = Self(ORCH_PERMIT_REVOKED)
    /// Was not used when the journal was restored from a backup.
    public static let void = Self(ORCH_PERMIT_VOID)

    /// "ISSUED", "USED", ...
    public var description: String { string(orch_permit_state_name(rawValue)) }
}

/// Lets one action of a kind happen once; see ``Journal/Intent/permit``. A copy of what it was when it was
/// looked up.
public struct Permit: Hashable, Sendable {
    /// What it is for.
    public struct Terms: Sendable {
        /// Unique in the journal for ever; 1..255 bytes.
        public var name: String
        /// Of the action.
        public var kind: String
        /// Of the request, as in ``Journal/Intent/fingerprint``; nil: any request of that kind.
        public var fingerprint: [UInt8]?
        /// In ms since 1970; 0: never.
        public var expiresAtMs: Int64
        /// For people: why, by whom; at most 4096 bytes.
        public var note: [UInt8]

        public init(
            _ name: String, kind: String, fingerprint: [UInt8]? = nil, expiresAtMs: Int64 = 0,
            note: [UInt8] = []
        ) {
            self.name = name
            self.kind = kind
            self.fingerprint = fingerprint
            self.expiresAtMs = expiresAtMs
            self.note = note
        }
    }

    public let id: UInt64
    public let name: String
    public let kind: String
    public let state: PermitState
    /// In ms since 1970; 0: never.
    public let expiresAtMs: Int64
    /// In which it was issued.
    public let epoch: UInt64
    /// Id of the action that has it.
    public let action: UInt64?
    public let note: [UInt8]?

    fileprivate init(copying permit: OpaquePointer) {
        id = orch_permit_id(permit)
        name = string(orch_permit_name(permit))
        kind = string(orch_permit_kind(permit))
        state = PermitState(orch_permit_state(permit))
        expiresAtMs = orch_permit_expires_at_ms(permit)
        epoch = orch_permit_epoch(permit)
        let action = orch_permit_action(permit)
        self.action = action == 0 ? nil : action
        var length = 0
        note = orch_permit_note(permit, &length).map { bytes($0, length) }
    }
}

extension Journal {
    /// Records a permit. The same name with the same terms gives the permit as it is now, in whatever state;
    /// with others `ORCH_ECONFLICT` is thrown. Others as for ``begin(_:)``.
    @discardableResult
    public func issue(_ terms: Permit.Terms) throws(OrchError) -> Permit {
        try withCMemory { memory throws(OrchError) in
            var opts = orch_permit_opts()
            orch_permit_opts_init(&opts, sizeOf(orch_permit_opts.self))
            opts.name = try memory.string(terms.name)
            opts.kind = try memory.string(terms.kind)
            opts.fingerprint = memory.bytes(terms.fingerprint)
            opts.fingerprint_length = terms.fingerprint?.count ?? 0
            opts.expires_at_ms = terms.expiresAtMs
            opts.note = memory.bytes(terms.note)
            opts.note_length = terms.note.count
            var permit: OpaquePointer?
            try check { orch_permit_issue(handle.pointer, &opts, &permit, $0) }
            defer { orch_permit_unref(permit) }
            return Permit(copying: permit!)
        }
    }

    /// Takes an issued permit back. `ORCH_ENOENT`; `ORCH_ESTATE`: it is used, expired, revoked or void.
    public func revokePermit(_ name: String) throws(OrchError) {
        try withCMemory { memory throws(OrchError) in
            let name = try memory.string(name)
            try check { orch_permit_revoke(handle.pointer, name, $0) }
        }
    }

    /// The permit of that name; nil if there is none.
    public func permit(_ name: String) throws(OrchError) -> Permit? {
        try withCMemory { memory throws(OrchError) in
            let name = try memory.string(name)
            var permit: OpaquePointer?
            do throws(OrchError) {
                try check { orch_permit_find(handle.pointer, name, &permit, $0) }
            } catch where error.code == .enoent {
                return nil
            }
            defer { orch_permit_unref(permit) }
            return Permit(copying: permit!)
        }
    }

    /// All of them, in the order of their issue.
    public var permits: [Permit] {
        get throws(OrchError) {
            var found: [Permit] = []
            try withCallback { (permit: OpaquePointer) in
                found.append(Permit(copying: permit))
                return true
            } call: { userdata throws(OrchError) in
                try check { orch_permit_each(handle.pointer, onPermit, userdata, $0) }
            }
            return found
        }
    }
}

private func onPermit(_ userdata: UnsafeMutableRawPointer?, _ permit: OpaquePointer?) -> Int32 {
    Callback<(OpaquePointer) -> Bool>.body(userdata)(permit!) ? 0 : 1
}
