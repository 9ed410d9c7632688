//! Writes a plot into a file: SVG as it is, PNG drawn from it.

use std::path::Path;

use crate::harness::BenchError;

/// Writes `svg` as the ending of the file says.
///
/// # Errors
/// When the file cannot be written, the ending is neither `.svg` nor `.png`, or this build draws no
/// PNG.
pub fn write(path: &Path, svg: &str) -> Result<(), BenchError> {
    check(path)?;
    let bytes = if is(path, "png") { png(svg)? } else { svg.as_bytes().to_vec() };
    std::fs::write(path, bytes).map_err(crate::compare::file_error("write", path))
}

/// Checks an ending, so that a mistake is known before anything is measured.
///
/// # Errors
/// As [`write`].
pub fn check(path: &Path) -> Result<(), BenchError> {
    let text = match path {
        _ if is(path, "svg") => return Ok(()),
        _ if is(path, "png") && cfg!(feature = "png") => return Ok(()),
        _ if is(path, "png") => {
            "this build draws no PNG; take FILE.svg, or build with `cargo build --release -p nuthatch-bench \
             --features png`"
                .to_owned()
        }
        _ => format!("{}: a picture ends in .svg or .png", path.display()),
    };
    Err(BenchError::Usage(text))
}

fn is(path: &Path, ending: &str) -> bool {
    path.extension().is_some_and(|found| found.eq_ignore_ascii_case(ending))
}

#[cfg(not(feature = "png"))]
fn png(_svg: &str) -> Result<Vec<u8>, BenchError> {
    Err(BenchError::Usage("this build draws no PNG".into()))
}

/// Draws twice as large as the SVG, for sharp letters.
#[cfg(feature = "png")]
fn png(svg: &str) -> Result<Vec<u8>, BenchError> {
    use resvg::tiny_skia::{Pixmap, Transform};
    use resvg::usvg::{Options, Tree};

    const SCALE: f32 = 2.0;
    // Servers seldom have fonts, so the letters come along.
    const LETTERS: &[u8] = include_bytes!("../assets/DejaVuSans-subset.ttf");

    let failed = |what: String| BenchError::Failed(format!("cannot draw the picture: {what}"));
    let mut options = Options { font_family: "DejaVu Sans".into(), ..Options::default() };
    options.fontdb_mut().load_font_data(LETTERS.to_vec());
    let tree = Tree::from_str(svg, &options).map_err(|err| failed(err.to_string()))?;
    let size = tree.size();
    let (width, height) = (size.width() * SCALE, size.height() * SCALE);
    let pixmap = Pixmap::new(width.ceil() as u32, height.ceil() as u32);
    let mut pixmap = pixmap.ok_or_else(|| failed("it is too large".into()))?;
    resvg::render(&tree, Transform::from_scale(SCALE, SCALE), &mut pixmap.as_mut());
    pixmap.encode_png().map_err(|err| failed(err.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_endings_are_refused_before_anything_is_measured() {
        for (name, good) in [("a.svg", true), ("a.SVG", true), ("a.jpg", false), ("a", false)] {
            assert_eq!(check(Path::new(name)).is_ok(), good, "{name}");
        }
        assert_eq!(check(Path::new("a.png")).is_ok(), cfg!(feature = "png"));
    }

    #[cfg(feature = "png")]
    #[test]
    fn a_png_has_the_plot_and_its_letters() {
        let points = (1..=100).map(|value| (f64::from(value), 1.0)).collect();
        let series = crate::plot::Series { name: "8 bytes".into(), points, colour: 0 };
        let with = |title: &str| {
            let svg = crate::plot::histogram(title, "µs", std::slice::from_ref(&series));
            let bytes = png(&svg).unwrap();
            assert_eq!(&bytes[..8], b"\x89PNG\r\n\x1a\n");
            resvg::tiny_skia::Pixmap::decode_png(&bytes).unwrap()
        };
        let (a, b) = (with("Latency"), with(""));
        assert_eq!((a.width(), a.height()), (b.width(), b.height()));
        assert!(a.data() != b.data(), "the title is not drawn");
        let blue = |pixel: &&resvg::tiny_skia::PremultipliedColorU8| {
            pixel.blue() > 150 && pixel.red() < 50
        };
        assert!(b.pixels().iter().filter(blue).count() > 100, "the curve is not drawn");
    }
}
