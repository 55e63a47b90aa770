// SPDX-License-Identifier: Apache-2.0
import Orch
import Testing

@Suite(.timeLimit(.minutes(2))) struct ContextTests {
    @Test func aContextIsMadeAndEnds() throws {
        let context = try Context()
        _ = context
        #expect(libraryVersion == headerVersion.text)
    }

    @Test func aRelativeHelperPathIsRefused() throws {
        #expect(throws: OrchError.self) { try Context(.init(helperPath: "orch-reaper")) }
    }
}
