// SPDX-License-Identifier: Apache-2.0
import COrch

public struct ChannelState: OrchConstant {
    public let rawValue: UInt32
    public init(rawValue: UInt32) { self.rawValue = rawValue }

    public static let enforced = Self(ORCH_CHANNEL_ENFORCED)
    public static let partial = Self(ORCH_CHANNEL_PARTIAL)
    public static let absent = Self(ORCH_CHANNEL_ABSENT)
}

public struct ProbeState: OrchConstant {
    public let rawValue: UInt32
    public init(rawValue: UInt32) { self.rawValue = rawValue }

    /// The probe: the attempt from inside was denied. The control: it worked outside.
    public static let passed = Self(ORCH_PROBE_PASSED)
    public static let failed = Self(ORCH_PROBE_FAILED)
    public static let notRun = Self(ORCH_PROBE_NOT_RUN)
}

/// What is really enforced on this host, channel by channel, proved by live probes with positive controls.
public struct SandboxReport: Sendable, CustomStringConvertible {
    public struct Row: Hashable, Sendable {
        /// "file.read", ...
        public let channel: String
        public let state: ChannelState
        public let mechanism: String
        public let probe: ProbeState
        public let control: ProbeState
        public let detail: String
        /// Of one that is not ``ChannelState/enforced``: what is missing here, and what to do about it; else nil.
        public let remedy: String?
    }

    public let rows: [Row]
    /// A table for people.
    public let text: String

    public var description: String { text }

    fileprivate init(copying report: OpaquePointer) {
        rows = (0..<orch_sandbox_report_count(report)).map { index in
            var channel: UnsafePointer<CChar>?
            var mechanism: UnsafePointer<CChar>?
            var detail: UnsafePointer<CChar>?
            (channel, mechanism, detail) = (nil, nil, nil)
            var state: UInt32 = 0
            var probe: UInt32 = 0
            var control: UInt32 = 0
            orch_sandbox_report_row(report, index, &channel, &state, &mechanism, &probe, &control, &detail)
            return Row(
                channel: string(channel), state: ChannelState(state), mechanism: string(mechanism),
                probe: ProbeState(probe), control: ProbeState(control), detail: string(detail),
                remedy: orch_sandbox_report_remedy(report, index).map { String(cString: $0) })
        }
        text = string(orch_sandbox_report_text(report))
    }
}

extension Context {
    /// Makes a throw-away sandbox of the given options and runs one live probe per channel in it.
    ///
    /// It takes a second or more, at most `timeoutMs` (0: 20000), and holds the context's thread: callbacks
    /// and events go on, other calls into the context wait.
    public func sandboxReport(
        _ options: Sandbox.Options = Sandbox.Options(), timeoutMs: Int64 = 0
    ) throws(OrchError) -> SandboxReport {
        try withCMemory { memory throws(OrchError) in
            var opts = orch_sandbox_opts()
            try options.fill(&opts, memory)
            var report: OpaquePointer?
            try check { orch_sandbox_report_run(executor.loop.ctx, &opts, timeoutMs, &report, $0) }
            defer { orch_sandbox_report_unref(report) }
            return SandboxReport(copying: report!)
        }
    }
}
