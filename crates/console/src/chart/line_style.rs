//! How lines differ: colors, dashes and marks.

use plotters::prelude::*;

use super::{Area, COLORS, Drawn, Shape, color, draw_mark};

/// How lines that repeat a color differ from the first one: the lengths of dashes and of the spaces between them in pixels, and marks.
const REPEATED_STYLES: [(Option<(u32, u32)>, Shape); 4] = [
    (Some((8, 5)), Shape::Circle),
    (Some((2, 4)), Shape::Square),
    (None, Shape::Triangle),
    (Some((12, 3)), Shape::Diamond),
];

/// The style of a line whose color an earlier line has, by its position.
fn repeated_style(position: usize) -> Option<(Option<(u32, u32)>, Shape)> {
    let repetition = (position / COLORS.len()).checked_sub(1)?;
    Some(REPEATED_STYLES[repetition % REPEATED_STYLES.len()])
}

/// The color of a line by its position, as CSS.
pub(super) fn css_color(position: usize) -> String {
    let RGBColor(red, green, blue) = color(position);
    format!("#{red:02x}{green:02x}{blue:02x}")
}

/// Pixels along a line between two of its marks.
const MARK_DISTANCE: f64 = 120.0;

/// A line with at most this many points has a mark at each.
const MAX_MARKED_POINTS: usize = 20;

/// The pixels of a line at which it has marks. Lines of different colors have them at different distances from their starts.
pub(super) fn mark_places(pixels: &[(i32, i32)], position: usize) -> Vec<(i32, i32)> {
    if pixels.len() <= MAX_MARKED_POINTS {
        return pixels.to_vec();
    }
    let mut left = MARK_DISTANCE * (position % COLORS.len() + 1) as f64 / COLORS.len() as f64;
    let mut places = Vec::new();
    for pair in pixels.windows(2) {
        let [(x, y), (next_x, next_y)] = [pair[0], pair[1]].map(|(x, y)| (f64::from(x), f64::from(y)));
        let length = (next_x - x).hypot(next_y - y);
        while left < length {
            let along = |from: f64, to: f64| (from + left / length * (to - from)).round() as i32;
            places.push((along(x, next_x), along(y, next_y)));
            left += MARK_DISTANCE;
        }
        left -= length;
    }
    places
}

/// Draws a line through pixels in the style of its position, with marks at `marked` if the style has marks. A dashed line is appended to
/// `dashed_lines` as SVG, since Plotters makes an element of each dash.
pub(super) fn draw_styled(
    area: &Area<'_>,
    pixels: &[(i32, i32)],
    marked: &[(i32, i32)],
    position: usize,
    dashed_lines: &mut String,
) -> Drawn {
    let style = repeated_style(position);
    match style.and_then(|(dashes, _)| dashes) {
        Some((length, space)) => {
            let points: Vec<String> = pixels.iter().map(|(x, y)| format!("{x},{y}")).collect();
            *dashed_lines += &format!(
                "<polyline fill=\"none\" stroke=\"{}\" stroke-width=\"2\" stroke-dasharray=\"{length} {space}\" points=\"{}\"/>\n",
                css_color(position),
                points.join(" ")
            );
        }
        None => area.draw(&PathElement::new(pixels, color(position).stroke_width(2)))?,
    }
    let Some((_, shape)) = style else { return Ok(()) };
    marked.iter().try_for_each(|&pixel| draw_mark(area, pixel, shape, color(position)))
}

/// Draws a short line in the style of a position, for a legend; see [`draw_styled`].
pub(super) fn draw_sample(
    area: &Area<'_>,
    (x, y): (i32, i32),
    width: i32,
    position: usize,
    dashed_lines: &mut String,
) -> Drawn {
    draw_styled(area, &[(x, y), (x + width, y)], &[(x + width / 2, y)], position, dashed_lines)
}

/// A short line in the style of a position as SVG, for a legend in HTML.
pub fn line_sample(position: usize) -> String {
    const SIZE: (u32, u32) = (36, 12);
    let (mut svg, mut dashed_lines) = (String::new(), String::new());
    let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
    let [width, middle] = [SIZE.0 as i32, SIZE.1 as i32 / 2];
    draw_sample(&area, (0, middle), width, position, &mut dashed_lines).expect("a string takes any SVG");
    drop(area);
    insert_elements(&mut svg, &dashed_lines);
    svg
}

/// Inserts elements at the end of an image.
pub(super) fn insert_elements(svg: &mut String, elements: &str) {
    let end = svg.rfind("</svg>").unwrap_or(svg.len());
    svg.insert_str(end, elements);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_have_marks_at_equal_distances() {
        let pixels: Vec<(i32, i32)> = (0..=600).map(|x| (x, 50)).collect();
        assert_eq!(mark_places(&pixels, 13), [(120, 50), (240, 50), (360, 50), (480, 50), (600, 50)][..4]);
        assert_eq!(mark_places(&pixels[..2], 13), pixels[..2]);
    }
}
