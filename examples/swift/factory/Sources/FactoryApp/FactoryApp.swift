// SPDX-License-Identifier: Apache-2.0
#if canImport(SwiftUI)
    import FactoryModel
    import Foundation
    import RunSetup
    import SwiftUI

    @main
    struct FactoryApp: App {
        @State private var factory = Factory(RunSetup(provider: .anthropic))

        var body: some Scene {
            WindowGroup("Factory") { FactoryView(factory: factory) }
        }
    }

    struct FactoryView: View {
        @Bindable var factory: Factory

        var body: some View {
            VStack(alignment: .leading, spacing: 12) {
                IdeaView(factory: factory)
                if let problem = factory.problem {
                    Text(problem).foregroundStyle(.red).textSelection(.enabled)
                }
                if factory.needsAnswers { QuestionsView(factory: factory) }
                TasksView(tasks: factory.tasks)
                if let report = factory.report { ReportView(report: report) }
                StatusView(factory: factory)
            }
            .padding()
            .frame(minWidth: 640, minHeight: 480)
        }
    }

    struct IdeaView: View {
        @Bindable var factory: Factory
        @State private var key = ""

        var body: some View {
            HStack {
                TextField("What shall be built?", text: $factory.idea, axis: .vertical)
                SecureField("API key", text: $key).frame(width: 160)
                Button("Start", action: start).disabled(factory.phase != .idle || factory.idea.isEmpty)
                Button("Stop", action: factory.stop).disabled(
                    factory.phase == .idle || factory.phase == .stopping)
            }
        }

        private func start() {
            factory.setup.key = key
            factory.setup.budget.tokens = 2_000_000
            let runs = URL.applicationSupportDirectory.appending(path: "Factory", directoryHint: .isDirectory)
            try? FileManager.default.createDirectory(at: runs, withIntermediateDirectories: true)
            factory.start(in: runs.appending(path: UUID().uuidString).path(percentEncoded: false))
        }
    }

    struct QuestionsView: View {
        let factory: Factory

        var body: some View {
            GroupBox("Questions") {
                ForEach(factory.questions) { QuestionView(question: $0) }
                HStack {
                    Button("Answer", action: factory.submitAnswers)
                    Button("Take what is recommended", action: factory.acceptRecommended)
                }
            }
        }
    }

    struct QuestionView: View {
        @Bindable var question: Question

        var body: some View {
            LabeledContent(question.text) { TextField(question.recommended, text: $question.answer) }
        }
    }

    struct TasksView: View {
        let tasks: [PlannedTask]

        var body: some View {
            Table(tasks) {
                TableColumn("Task") { Text($0.id) }.width(48)
                TableColumn("Title") { Text($0.title) }
                TableColumn("State") { Text($0.state.rawValue) }.width(80)
                TableColumn("Attempts") { Text($0.attempts, format: .number) }.width(64)
                TableColumn("") { Text($0.lastLine).lineLimit(1).monospaced() }
            }
        }
    }

    struct ReportView: View {
        let report: Report

        var body: some View {
            HStack {
                Text(report.state.description).bold()
                if let path = report.path { Link("Report", destination: URL(filePath: path)) }
                if let path = report.product { Link("Product", destination: URL(filePath: path)) }
            }
        }
    }

    struct StatusView: View {
        let factory: Factory

        var body: some View {
            HStack {
                ForEach(factory.stages) { Text("\($0.id): \($0.state.rawValue)") }
                Spacer()
                Text("\(factory.spent.requests) requests, \(factory.spent.tokens) tokens")
            }
            .font(.caption)
        }
    }
#else
    @main
    enum FactoryApp {
        static func main() {
            print("FactoryApp is the SwiftUI app; there is no SwiftUI here, so it is not compiled.")
        }
    }
#endif
