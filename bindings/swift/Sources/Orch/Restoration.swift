// SPDX-License-Identifier: Apache-2.0
import COrch

/// What became of a journal that was made of a backup.
public struct Restoration: Hashable, Sendable, CustomStringConvertible {
    /// The one that it started.
    public let epoch: UInt64
    /// Of the backup.
    public let records: UInt64
    /// Records known to have been written after the backup; 0: none, or nothing knows.
    public let lost: UInt64
    /// Actions that became unknown.
    public let unknown: UInt32
    /// Permits that became void.
    public let void: UInt32
    /// Where the journal that was there is now; nil: there was none.
    public let replaced: String?
    /// For people.
    public let text: String

    public var description: String { text }

    fileprivate init(copying restoration: OpaquePointer) {
        epoch = orch_restoration_epoch(restoration)
        records = orch_restoration_records(restoration)
        lost = orch_restoration_lost(restoration)
        unknown = orch_restoration_unknown(restoration)
        void = orch_restoration_void(restoration)
        let replaced = string(orch_restoration_replaced(restoration))
        self.replaced = replaced.isEmpty ? nil : replaced
        text = string(orch_restoration_text(restoration))
    }
}

extension Journal {
    /// Drops the payloads of actions that were confirmed, failed or abandoned before that time, in ms since
    /// 1970. The actions stay, with the digests of their payloads: a begin finds them as before.
    @discardableResult
    public func prune(closedBeforeMs: Int64) throws(OrchError) -> (actions: UInt64, bytes: UInt64) {
        var actions: UInt64 = 0
        var bytes: UInt64 = 0
        try check { orch_journal_prune(handle.pointer, closedBeforeMs, &actions, &bytes, $0) }
        return (actions, bytes)
    }

    /// Everything as NDJSON, a line of JSON with its newline at a time, until the function throws; what it
    /// throws is thrown on. The last line is `{"type":"end",...}`: without it the export is not whole.
    /// - Parameter records: also a line for each record.
    public func export(records: Bool = false, _ body: (String) throws -> Void) throws {
        var thrown: (any Error)?
        try withCallback { (line: String) in
            do { try body(line) } catch { thrown = error }
            return thrown == nil
        } call: { userdata throws(OrchError) in
            try check {
                orch_journal_export(handle.pointer, records ? ORCH_EXPORT_RECORDS : 0, onLine, userdata, $0)
            }
        }
        if let thrown { throw thrown }
    }

    /// Writes a whole, verified copy while the journal is in use, and returns its number of records. It is no
    /// journal: ``restore(_:to:anchorPath:replace:)`` makes one of it; read-only it can be opened.
    /// `ORCH_EEXIST`: the path exists, and stays as it is; `ORCH_ENOENT`: no such folder; `ORCH_ENOSPC`;
    /// `ORCH_ECORRUPT`; `ORCH_ESYS`.
    @discardableResult
    public func backup(to path: String) throws(OrchError) -> UInt64 {
        try withCMemory { memory throws(OrchError) in
            let path = try memory.string(path)
            var records: UInt64 = 0
            try check { orch_journal_backup(handle.pointer, path, &records, $0) }
            return records
        }
    }

    /// Makes a journal of a backup: a new epoch, whole or not at all. A backup does not know what happened
    /// after it was made: permits that were not used are void, and open or failed actions are unknown, until a
    /// recovery has asked what became of them. It works on files, on the caller's thread.
    /// - Parameters:
    ///   - anchorPath: as in ``Options``.
    ///   - replace: a journal at the path is moved aside, never removed.
    ///
    /// `ORCH_EEXIST`: there is one, without `replace`; `ORCH_ELOCKED`: a coordinator owns it; `ORCH_ECORRUPT`:
    /// the backup is none, or damaged; `ORCH_ESCHEMA`, `ORCH_ENETFS`, `ORCH_ENOENT`, `ORCH_ENOSPC`, ...
    @discardableResult
    public static func restore(
        _ backupPath: String, to path: String, anchorPath: String? = nil, replace: Bool = false
    ) throws(OrchError) -> Restoration {
        try withCMemory { memory throws(OrchError) in
            var opts = orch_restore_opts()
            orch_restore_opts_init(&opts, sizeOf(orch_restore_opts.self))
            opts.flags = replace ? ORCH_RESTORE_REPLACE : 0
            opts.backup_path = try memory.string(backupPath)
            opts.path = try memory.string(path)
            opts.anchor_path = try memory.string(anchorPath)
            var restoration: OpaquePointer?
            try check { orch_journal_restore(&opts, &restoration, $0) }
            defer { orch_restoration_unref(restoration) }
            return Restoration(copying: restoration!)
        }
    }
}

private func onLine(
    _ userdata: UnsafeMutableRawPointer?, _ line: UnsafePointer<CChar>?, _ length: Int
) -> Int32 {
    // It ends where its length says, not at a NUL.
    let text = line!.withMemoryRebound(to: UInt8.self, capacity: length) {
        String(decoding: UnsafeBufferPointer(start: $0, count: length), as: UTF8.self)
    }
    return Callback<(String) -> Bool>.body(userdata)(text) ? 0 : 1
}
