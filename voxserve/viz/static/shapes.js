// Marks of the canvas: outcomes and classes differ by shape as well as by colour.

export function line(g, x0, y0, x1, y1) {
  g.beginPath();
  g.moveTo(x0, y0);
  g.lineTo(x1, y1);
  g.stroke();
}

export function cross(g, x, y, r) {
  line(g, x - r, y - r, x + r, y + r);
  line(g, x - r, y + r, x + r, y - r);
}

export function disc(g, x, y, r, colour, solid = true) {
  g.beginPath();
  g.arc(x, y, r, 0, 2 * Math.PI);
  paint(g, colour, solid);
}

export function diamond(g, x, y, r, colour, solid = true) {
  polygon(g, [[x, y - r], [x + r, y], [x, y + r], [x - r, y]], colour, solid);
}

/** Pointing down; solid for the server's stalls, open for the listener's. */
export function triangle(g, x, y, r, colour, solid) {
  polygon(g, [[x - r, y - r], [x + r, y - r], [x, y + r]], colour, solid);
}

/** Two triangles, tip to tip. */
export function hourglass(g, x, y, r, colour) {
  polygon(g, [[x - r, y - r], [x + r, y - r], [x - r, y + r], [x + r, y + r]], colour, true);
}

export function polygon(g, points, colour, solid) {
  g.beginPath();
  points.forEach(([x, y], i) => (i ? g.lineTo(x, y) : g.moveTo(x, y)));
  g.closePath();
  paint(g, colour, solid);
}

function paint(g, colour, solid) {
  g.fillStyle = colour;
  g.strokeStyle = colour;
  if (solid) return g.fill();
  g.lineWidth = 2;
  g.stroke();
  g.lineWidth = 1;
}
