//! Draws charts as SVG, for reports and for the figures of the papers' evaluations.
//!
//! The same values give the same bytes: coordinates are whole pixels, and the widths of texts are estimated without fonts.

mod axis;
mod dots;
mod legend;
mod line_style;
mod lines;

pub use axis::{Scale, round_values};
pub use dots::{Dot, DotPlot, DotRow, DotSeries};
pub use line_style::line_sample;
pub use lines::{LineChart, Marks, distribution};

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// Colors that people with any color vision can tell apart (Okabe and Ito), on light and dark pages.
const COLORS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(213, 94, 0),
    RGBColor(86, 180, 233),
    RGBColor(204, 121, 167),
    RGBColor(128, 128, 128),
];

/// Readable on light and dark pages.
const GRAY: RGBColor = RGBColor(128, 128, 128);

/// Text and published values in images, whose background is white.
const DARK: RGBColor = RGBColor(40, 40, 40);

/// The width of a chart in pixels; pages scale it.
const WIDTH: u32 = 900;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

/// The shape of a mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    Circle,
    Square,
    Triangle,
    Diamond,
    /// For published values.
    HollowDiamond,
}

/// The shapes of measured values, by the position of their series.
const SHAPES: [Shape; 4] = [Shape::Circle, Shape::Square, Shape::Triangle, Shape::Diamond];

fn color(position: usize) -> RGBColor {
    COLORS[position % COLORS.len()]
}

/// Draws a mark around a pixel.
fn draw_mark(area: &Area<'_>, (x, y): (i32, i32), shape: Shape, color: RGBColor) -> Drawn {
    let corners = |corners: &[(i32, i32)]| -> Vec<(i32, i32)> {
        corners.iter().map(|(right, down)| (x + right, y + down)).collect()
    };
    let fill = |points: &[(i32, i32)]| area.draw(&Polygon::new(corners(points), color.filled()));
    match shape {
        Shape::Circle => area.draw(&Circle::new((x, y), 4, color.filled()))?,
        Shape::Square => fill(&[(-4, -4), (4, -4), (4, 4), (-4, 4)])?,
        Shape::Triangle => fill(&[(0, -5), (5, 4), (-5, 4)])?,
        Shape::Diamond => fill(&[(0, -5), (5, 0), (0, 5), (-5, 0)])?,
        Shape::HollowDiamond => {
            let outline = corners(&[(0, -6), (6, 0), (0, 6), (-6, 0), (0, -6)]);
            area.draw(&PathElement::new(outline, color.stroke_width(2)))?;
        }
    }
    Ok(())
}

/// Text whose middle is at the height of its point.
fn text_style(color: RGBColor, side: HPos) -> TextStyle<'static> {
    ("sans-serif", 16).into_font().color(&color).pos(Pos::new(side, VPos::Center))
}

/// The estimated width of a text in pixels.
fn text_width(text: &str) -> i32 {
    7 * text.chars().count() as i32
}

/// A number without trailing zeros.
pub fn number(value: f64) -> String {
    if value != 0.0 && !(1e-3..1e6).contains(&value.abs()) {
        return format!("{value:e}");
    }
    let text = format!("{value:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
