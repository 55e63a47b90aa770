// SPDX-License-Identifier: Apache-2.0
import COrch

public struct ChangeKind: OrchConstant {
    public let rawValue: UInt32
    public init(rawValue: UInt32) { self.rawValue = rawValue }

    public static let added = Self(ORCH_CHANGE_ADDED)
    /// Content, mode, type or link target; of a folder its mode.
    public static let modified = Self(ORCH_CHANGE_MODIFIED)
    public static let deleted = Self(ORCH_CHANGE_DELETED)
}

/// What programs changed in a sandbox's overlay. It keeps the sandbox, whose private file system ``export(to:)`` reads.
public actor Changes {
    public struct Row: Hashable, Sendable {
        /// Relative to the workspace. Bytes that are no UTF-8 are replaced; ``Changes/export(to:)`` keeps them.
        public let path: String
        public let kind: ChangeKind
        /// As of stat(2), with the type; 0: deleted.
        public let mode: UInt32
        /// Of a file.
        public let bytes: UInt64
    }

    /// Sorted by path.
    public nonisolated let rows: [Row]
    /// One line for each: "A path", "M path", "D path".
    public nonisolated let text: String

    private nonisolated let handle: Handle
    private nonisolated let sandbox: Handle

    public nonisolated var unownedExecutor: UnownedSerialExecutor {
        handle.executor.asUnownedSerialExecutor()
    }

    fileprivate init(_ handle: Handle, of sandbox: Handle) {
        self.handle = handle
        self.sandbox = sandbox
        let changes = handle.pointer
        rows = (0..<orch_changes_count(changes)).map { index in
            var path: UnsafePointer<CChar>?
            var kind: UInt32 = 0
            var mode: UInt32 = 0
            var bytes: UInt64 = 0
            orch_changes_row(changes, index, &path, &kind, &mode, &bytes)
            return Row(path: string(path), kind: ChangeKind(kind), mode: mode, bytes: bytes)
        }
        text = string(orch_changes_text(changes))
    }

    /// Writes the added and modified files, folders and links below `folder`, which has to be there and empty. Devices,
    /// sockets, pipes and set-id bits are left out; links are written as they are and never followed.
    ///
    /// `ORCH_EEXIST`: the folder is not empty; `ORCH_ESYS` with the path: what was written stays.
    public func export(to folder: String) throws(OrchError) {
        try withCMemory { memory throws(OrchError) in
            let folder = try memory.string(folder)
            try check { orch_changes_export(handle.pointer, folder, $0) }
        }
    }
}

extension Sandbox {
    /// What programs changed in the overlay, while it stands or after its end. `ORCH_ESTATE`: it has none, or never
    /// stood; `ORCH_ETOOBIG`; `ORCH_ESYS`.
    public func changes() throws(OrchError) -> Changes {
        let changes = try made(handle.executor, orch_changes_unref) {
            orch_sandbox_changes(handle.pointer, $0, $1)
        }
        return Changes(changes!, of: handle)
    }
}
