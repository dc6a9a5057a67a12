//! Writes `examples/wide-area/private-cloud.toml`: three regions, as in section 5.3 of Siphon (ATC '18).
//!
//! The paper measured more than 1,000 samples of each link and shows them in Fig. 14, without numbers in the
//! text. This example has the same structure (three regions, a separate distribution per link) but no numbers
//! of the paper. A link's samples are the hundred percentiles 0.5, 1.5, ..., 99.5 of its distribution: the
//! best rate minus an exponential loss, with a minimum of a tenth of the best rate. Links differ in their
//! best rates and mean losses.

/// From, to, the best rate in Mbit/s, and the mean loss as a fraction of it.
const LINKS: [(&str, &str, f64, f64); 6] = [
    ("victoria", "toronto", 240.0, 0.15),
    ("victoria", "montreal", 200.0, 0.4),
    ("toronto", "victoria", 220.0, 0.3),
    ("toronto", "montreal", 400.0, 0.1),
    ("montreal", "victoria", 180.0, 0.5),
    ("montreal", "toronto", 360.0, 0.2),
];

fn main() {
    print!(
        "# Three regions as in section 5.3 of Siphon (ATC '18). The paper's own samples (Fig. 14) are not published as numbers: these are\n\
         # made up, by `cargo run -p weir-trace --example private_cloud`, which says how.\n\
         weir-wide-area = 1\nregions = [\"victoria\", \"toronto\", \"montreal\"]\nchange-interval = \"10s\"\ncorrelation = 0.9\n"
    );
    for (from, to, best, missing) in LINKS {
        print!("\n[[link]]\nfrom = \"{from}\"\nto = \"{to}\"\nsamples = [");
        for percent in 0..100 {
            let above = (f64::from(percent) + 0.5) / 100.0;
            let rate = best * (1.0 + missing * libm::log(above)).max(0.1);
            if percent % 8 == 0 {
                print!("\n   ");
            }
            print!(" \"{rate:.1}Mbit\",");
        }
        println!("\n]");
    }
}
