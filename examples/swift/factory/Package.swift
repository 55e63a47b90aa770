// swift-tools-version: 6.1
import PackageDescription

// SwiftPM calls a package after its folder: bindings/swift.
let orch = Target.Dependency.product(name: "Orch", package: "swift")

let package = Package(
    name: "Factory",
    platforms: [.macOS(.v15)],
    products: [
        .executable(name: "pipeline", targets: ["pipeline"]),
        .library(name: "FactoryModel", targets: ["FactoryModel"]),
        .executable(name: "FactoryApp", targets: ["FactoryApp"]),
    ],
    dependencies: [.package(path: "../../../bindings/swift")],
    targets: [
        .target(name: "RunSetup", dependencies: [orch]),
        .executableTarget(name: "pipeline", dependencies: ["RunSetup", orch]),
        .target(name: "FactoryModel", dependencies: ["RunSetup", orch]),
        .executableTarget(name: "FactoryApp", dependencies: ["FactoryModel", "RunSetup"]),
        .testTarget(name: "FactoryModelTests", dependencies: ["FactoryModel", "RunSetup", orch]),
    ],
    swiftLanguageModes: [.v6]
)
