// SPDX-License-Identifier: Apache-2.0

/// One value that comes later, for any number of tasks. The first result stays.
final class Promise<Value: Sendable>: Sendable {
    typealias Outcome = Result<Value, OrchError>

    private struct State {
        var outcome: Outcome?
        var waiting: [Int: CheckedContinuation<Outcome, Never>] = [:]
        var next = 0
    }

    private let state = Locked(State())

    func settle(_ outcome: Outcome) {
        let waiting = state.withLock { state in
            if state.outcome != nil { return [CheckedContinuation<Outcome, Never>]() }
            state.outcome = outcome
            defer { state.waiting = [:] }
            return Array(state.waiting.values)
        }
        for one in waiting { one.resume(returning: outcome) }
    }

    func succeed(_ value: Value) { settle(.success(value)) }

    func fail(_ error: OrchError) { settle(.failure(error)) }

    var outcome: Outcome? { state.withLock { $0.outcome } }

    /// For what can not be taken back: waits also in a cancelled task.
    func value() async throws(OrchError) -> Value {
        try await withCheckedContinuation { one in add(one, nil) }.get()
    }

    /// `ORCH_ECANCELED` if the task is cancelled. What was waited for goes on.
    func valueUnlessCancelled() async throws(OrchError) -> Value {
        let number = state.withLock { state in
            defer { state.next += 1 }
            return state.next
        }
        return try await withTaskCancellationHandler {
            await withCheckedContinuation { one in
                add(one, number)
                // It may have been cancelled before it was added.
                if Task.isCancelled { cancel(number) }
            }
        } onCancel: {
            cancel(number)
        }.get()
    }

    private func add(_ one: CheckedContinuation<Outcome, Never>, _ number: Int?) {
        let outcome = state.withLock { state in
            if state.outcome == nil {
                state.waiting[number ?? state.next] = one
                if number == nil { state.next += 1 }
            }
            return state.outcome
        }
        if let outcome { one.resume(returning: outcome) }
    }

    private func cancel(_ number: Int) {
        let one = state.withLock { $0.waiting.removeValue(forKey: number) }
        one?.resume(returning: .failure(OrchError(.ecanceled, "the waiting task was cancelled")))
    }
}

/// Gives each value to every stream that is open.
final class Hub<Element: Sendable>: Sendable {
    private struct State {
        var open: [Int: AsyncStream<Element>.Continuation] = [:]
        var next = 0
        var finished = false
    }

    private let state = Locked(State())

    func send(_ element: Element) {
        for one in state.withLock({ Array($0.open.values) }) { one.yield(element) }
    }

    func finish() {
        let open = state.withLock { state in
            state.finished = true
            defer { state.open = [:] }
            return Array(state.open.values)
        }
        for one in open { one.finish() }
    }

    /// From now on; it ends with the source.
    func stream() -> AsyncStream<Element> {
        let (stream, continuation) = AsyncStream<Element>.makeStream()
        let number = state.withLock { state -> Int? in
            if state.finished { return nil }
            defer { state.next += 1 }
            state.open[state.next] = continuation
            return state.next
        }
        guard let number else {
            continuation.finish()
            return stream
        }
        continuation.onTermination = { [weak self] _ in
            _ = self?.state.withLock { $0.open.removeValue(forKey: number) }
        }
        return stream
    }
}
