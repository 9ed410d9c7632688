//! The product depends on neither the simulator nor the cores that are still under proof.

use std::path::Path;

#[test]
fn no_crate_of_the_product_depends_on_the_simulator() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the folder of the crates");
    let mut seen = 0;
    for folder in std::fs::read_dir(crates).expect("crates").map(|entry| entry.expect("a crate")) {
        let name = folder.file_name().into_string().expect("a name");
        let Ok(manifest) = std::fs::read_to_string(folder.path().join("Cargo.toml")) else {
            continue;
        };
        if name == "nuthatch-sim" || name == "nuthatch-quorum" {
            continue;
        }
        seen += 1;
        assert!(!manifest.contains("nuthatch-sim"), "{name} depends on the simulator");
        let has_cores = manifest.contains("nuthatch-quorum");
        assert!(
            !has_cores || ["nuthatch-cluster", "nuthatch-catalog-group"].contains(&name.as_str()),
            "{name} depends on the quorum log's cores"
        );
    }
    assert!(seen >= 8, "the crates of the product were looked at");
}
