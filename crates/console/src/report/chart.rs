//! Draws line charts as SVG.

use plotters::coord::combinators::LogCoord;
use plotters::coord::ranged1d::{Ranged, ValueFormatter};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

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

/// Size of a chart in pixels; pages scale it.
const SIZE: (u32, u32) = (900, 380);

/// The most points of a line. More would not be visible.
const MAX_POINTS: usize = 400;

/// A line chart.
pub struct Chart<'a> {
    /// Title of the x axis, with its unit.
    pub x_title: &'a str,
    /// Title of the y axis.
    pub y_title: &'a str,
    /// Labels at 0, 1 and so on, if the x axis has no numbers.
    pub x_labels: &'a [String],
    /// Whether the x axis is logarithmic.
    pub has_log_axis: bool,
    /// The highest value of the y axis, which starts at 0.
    pub y_max: f64,
    /// Points of each line, ascending in x; in a chart with a logarithmic axis, above 0.
    pub lines: Vec<Vec<(f64, f64)>>,
}

/// The color of a line by its position, as CSS, and the style of its border in a legend. Lines that repeat a color are dashed, then
/// dotted.
pub fn line_style(position: usize) -> (String, &'static str) {
    let RGBColor(red, green, blue) = COLORS[position % COLORS.len()];
    let style = match dashes(position) {
        None => "solid",
        Some((length, _)) if length > 2 => "dashed",
        Some(_) => "dotted",
    };
    (format!("#{red:02x}{green:02x}{blue:02x}"), style)
}

/// The length of the dashes of a line and of the space between them, in pixels.
fn dashes(position: usize) -> Option<(u32, u32)> {
    match position / COLORS.len() % 3 {
        0 => None,
        1 => Some((8, 5)),
        _ => Some((2, 4)),
    }
}

impl Chart<'_> {
    /// The chart as SVG; `None` without points.
    pub fn to_svg(&self) -> Option<String> {
        let points = || self.lines.iter().flatten();
        let min = points().map(|point| point.0).fold(f64::INFINITY, f64::min);
        let max = points().map(|point| point.0).fold(f64::NEG_INFINITY, f64::max);
        if !(min <= max && max.is_finite()) {
            return None;
        }
        let mut svg = String::new();
        let drawn = if self.has_log_axis {
            // A single value needs a range, too.
            let (min, max) = if min < max { (min, max) } else { (min / 2.0, max * 2.0) };
            self.draw(&mut svg, LogCoord::from((min..max).log_scale()))
        } else {
            self.draw(&mut svg, RangedCoordf64::from(min.min(0.0)..max.max(min + 1e-9)))
        };
        drawn.expect("a string takes any SVG");
        Some(svg)
    }

    fn x_label(&self, value: f64) -> String {
        if self.x_labels.is_empty() {
            return number(value);
        }
        let is_whole = (value - value.round()).abs() < 1e-6 && value > -0.5;
        let label = is_whole.then(|| self.x_labels.get(value.round() as usize)).flatten();
        label.cloned().unwrap_or_default()
    }

    fn draw<X>(&self, svg: &mut String, x_axis: X) -> Result<(), Box<dyn std::error::Error>>
    where
        X: Ranged<ValueType = f64> + ValueFormatter<f64>,
    {
        let root = SVGBackend::with_string(svg, SIZE).into_drawing_area();
        let mut chart = ChartBuilder::on(&root)
            .margin(8)
            .x_label_area_size(44)
            .y_label_area_size(60)
            .build_cartesian_2d(x_axis, 0.0..self.y_max)?;
        let gray = RGBColor(128, 128, 128);
        chart
            .configure_mesh()
            .x_desc(self.x_title)
            .y_desc(self.y_title)
            .label_style(("sans-serif", 13, &gray))
            .axis_desc_style(("sans-serif", 14, &gray))
            .axis_style(gray)
            .bold_line_style(gray.mix(0.3))
            .light_line_style(TRANSPARENT)
            .x_labels(if self.x_labels.is_empty() { 10 } else { self.x_labels.len().clamp(2, 20) })
            .x_label_formatter(&|value| self.x_label(*value))
            .y_label_formatter(&|value| number(*value))
            .draw()?;
        for (position, line) in self.lines.iter().enumerate() {
            let style = COLORS[position % COLORS.len()].stroke_width(2);
            let points = thin_out(line);
            match dashes(position) {
                Some((length, space)) => {
                    chart.draw_series(DashedLineSeries::new(points, length, space, style))?
                }
                None => chart.draw_series(LineSeries::new(points, style))?,
            };
        }
        root.present()?;
        Ok(())
    }
}

/// At most [`MAX_POINTS`] of the points, with the first and the last.
fn thin_out(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    if points.len() <= MAX_POINTS {
        return points.to_vec();
    }
    let last = points.len() - 1;
    (0..MAX_POINTS).map(|at| points[at * last / (MAX_POINTS - 1)]).collect()
}

/// A number without trailing zeros.
fn number(value: f64) -> String {
    if value != 0.0 && !(1e-3..1e6).contains(&value.abs()) {
        return format!("{value:e}");
    }
    let text = format!("{value:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(lines: Vec<Vec<(f64, f64)>>) -> Chart<'static> {
        Chart { x_title: "seconds", y_title: "part", x_labels: &[], has_log_axis: true, y_max: 1.0, lines }
    }

    #[test]
    fn chart_without_points_is_none() {
        assert_eq!(chart(vec![Vec::new()]).to_svg(), None);
    }

    #[test]
    fn chart_draws_each_line_in_its_color() {
        let svg =
            chart((1..=8).map(|end| vec![(0.1, 0.0), (f64::from(end), 1.0)]).collect()).to_svg().unwrap();
        for position in 0..7 {
            let color = line_style(position).0;
            assert!(svg.to_lowercase().contains(&color), "{color}: {svg}");
        }
        assert!(svg.contains("seconds") && svg.contains("part"), "{svg}");
        assert_eq!(
            [0, 7, 14, 21].map(|position| line_style(position).1),
            ["solid", "dashed", "dotted", "solid"]
        );
    }

    #[test]
    fn single_point_has_a_range() {
        assert!(chart(vec![vec![(2.0, 1.0)]]).to_svg().is_some());
    }

    #[test]
    fn long_line_keeps_its_ends() {
        let points: Vec<(f64, f64)> = (0..10_000).map(|at| (f64::from(at), 0.0)).collect();
        let kept = thin_out(&points);
        assert_eq!((kept.len(), kept[0], kept[MAX_POINTS - 1]), (MAX_POINTS, points[0], points[9_999]));
    }
}
