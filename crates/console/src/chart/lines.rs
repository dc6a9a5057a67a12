//! Draws lines over two axes.

use plotters::prelude::*;

use super::axis::Axis;
use super::legend::{Legend, Sample};
use super::{Area, COLORS, DARK, Drawn, GRAY, SHAPES, Scale, Shape, WIDTH, color, draw_mark, number};

/// The height of a chart without its legend, in pixels.
const HEIGHT: i32 = 380;

/// Space at the right for half of the last label of the x axis, in pixels.
const LABEL_SPACE: u32 = 16;

/// The most points of a line. More would not be visible.
const MAX_POINTS: usize = 400;

/// A line chart.
#[derive(Default)]
pub struct LineChart<'a> {
    /// Title of the x axis, with its unit.
    pub x_title: &'a str,
    /// Title of the y axis.
    pub y_title: &'a str,
    /// Labels at 0, 1 and so on, if the x axis has no numbers.
    pub x_labels: &'a [String],
    /// The scale of the x axis.
    pub x_scale: Scale,
    /// The lowest value of the y axis.
    pub y_min: f64,
    /// The highest value of the y axis.
    pub y_max: f64,
    /// Points of each line, ascending in x; in a chart with a logarithmic axis, above 0.
    pub lines: Vec<Vec<(f64, f64)>>,
    /// The names of the lines, for an image outside of a report: it has a legend and a white background.
    pub names: &'a [String],
    /// Points next to the lines. In an image, the legend has their names.
    pub marks: Vec<Marks>,
}

/// Points that are drawn as marks.
#[derive(Debug, Clone)]
pub struct Marks {
    /// Their name in the legend.
    pub name: String,
    /// The position of the line whose color they have; `None` for points of no line.
    pub line: Option<usize>,
    /// Whether a paper publishes them. Published points are hollow.
    pub is_published: bool,
    /// The points.
    pub points: Vec<(f64, f64)>,
}

impl Marks {
    /// Points that a paper publishes.
    pub fn published(name: impl Into<String>, line: Option<usize>, points: &[(f64, f64)]) -> Marks {
        Marks { name: name.into(), line, is_published: true, points: points.to_vec() }
    }

    fn style(&self, position: usize) -> (Shape, RGBColor) {
        let shape = if self.is_published { Shape::HollowDiamond } else { SHAPES[position % SHAPES.len()] };
        (shape, self.line.map_or(DARK, color))
    }
}

/// The line of a distribution: the part of the values that are at most x. It rises at each value in a step.
pub fn distribution(values: &[f64]) -> Vec<(f64, f64)> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let part = |rank: usize| rank as f64 / sorted.len() as f64;
    sorted
        .iter()
        .enumerate()
        .flat_map(|(rank, &value)| [(value, part(rank)), (value, part(rank + 1))])
        .collect()
}

/// The color of a line by its position, as CSS, and the style of its border in a legend. Lines that repeat a color are dashed, then
/// dotted.
pub fn line_style(position: usize) -> (String, &'static str) {
    let RGBColor(red, green, blue) = color(position);
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

/// Draws a line through pixels, in the color of its position.
pub(super) fn draw_line(area: &Area<'_>, pixels: &[(i32, i32)], position: usize) -> Drawn {
    let style = color(position).stroke_width(2);
    match dashes(position) {
        Some((length, space)) => {
            for dash in DashedLineSeries::new(pixels.iter().copied(), length, space, style) {
                area.draw(&dash)?;
            }
        }
        None => area.draw(&PathElement::new(pixels, style))?,
    }
    Ok(())
}

impl LineChart<'_> {
    /// The chart as SVG; `None` without points.
    pub fn to_svg(&self) -> Option<String> {
        let points = self.lines.iter().chain(self.marks.iter().map(|marks| &marks.points)).flatten();
        let x_axis = Axis::over(self.x_scale, points.map(|point| point.0))?;
        let mut svg = String::new();
        self.draw(&mut svg, x_axis).expect("a string takes any SVG");
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

    /// An image has a legend.
    fn legend(&self) -> Legend {
        let mut legend = Legend::default();
        self.names.iter().enumerate().for_each(|(position, name)| legend.add(Sample::Line(position), name));
        for (position, marks) in self.marks.iter().enumerate() {
            let (shape, color) = marks.style(position);
            legend.add(Sample::Mark(shape, color), &marks.name);
        }
        legend
    }

    fn draw(&self, svg: &mut String, x_axis: Axis) -> Drawn {
        let legend = self.legend();
        let is_image = legend.height() > 0;
        let height = (HEIGHT + legend.height()) as u32;
        let root = SVGBackend::with_string(svg, (WIDTH + LABEL_SPACE, height)).into_drawing_area();
        let text = if is_image { DARK } else { GRAY };
        if is_image {
            root.fill(&WHITE)?;
            legend.draw(&root)?;
        }
        let mut chart = ChartBuilder::on(&root)
            .margin(8)
            .margin_right(8 + LABEL_SPACE)
            .margin_top(8 + legend.height())
            .x_label_area_size(44)
            .y_label_area_size(60)
            .build_cartesian_2d(x_axis, self.y_min..self.y_max)?;
        chart
            .configure_mesh()
            .x_desc(self.x_title)
            .y_desc(self.y_title)
            .label_style(("sans-serif", if is_image { 15 } else { 13 }, &text))
            .axis_desc_style(("sans-serif", if is_image { 16 } else { 14 }, &text))
            .axis_style(GRAY)
            .bold_line_style(GRAY.mix(0.3))
            .light_line_style(TRANSPARENT)
            .x_labels(if self.x_labels.is_empty() { 10 } else { self.x_labels.len().clamp(2, 20) })
            .x_label_formatter(&|value| self.x_label(*value))
            .y_label_formatter(&|value| number(*value))
            .draw()?;
        let pixel = |point: &(f64, f64)| chart.backend_coord(point);
        for (position, line) in self.lines.iter().enumerate() {
            let pixels: Vec<(i32, i32)> = thin_out(line).iter().map(pixel).collect();
            draw_line(&root, &pixels, position)?;
        }
        for (position, marks) in self.marks.iter().enumerate() {
            let (shape, color) = marks.style(position);
            marks.points.iter().map(pixel).try_for_each(|pixel| draw_mark(&root, pixel, shape, color))?;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(lines: Vec<Vec<(f64, f64)>>) -> LineChart<'static> {
        LineChart {
            x_title: "seconds",
            y_title: "part",
            x_scale: Scale::Log,
            y_max: 1.0,
            lines,
            ..LineChart::default()
        }
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
    fn distribution_rises_in_steps() {
        assert_eq!(distribution(&[3.0, 1.0]), [(1.0, 0.0), (1.0, 0.5), (3.0, 0.5), (3.0, 1.0)]);
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
