"""What the tests of the page do with it again and again."""
import base64
import json

import numpy as np

STATE = "(name => window.edgewiseExplorer.state[name])"
SHOWN = "document.getElementById('explorer').dataset.shown"
BESIDE = "document.getElementById('explorer').dataset.beside"


def open_page(page, server, view="", seconds=30):
    page.open("about:blank")
    page.open((server if isinstance(server, str) else server.url) + (f"#{view}" if view else ""))
    page.wait(f"{SHOWN} && window.edgewiseExplorer.firstPicture", seconds)
    return page


def state(page, name):
    return page.eval(f"{STATE}({json.dumps(name)})")


def figure(page, name):
    return int(page.eval(f"document.getElementById('explorer').dataset.{name}"))


def settle(page, shown):
    page.wait(f"{SHOWN} === {json.dumps(shown)}")


def drawn(page, half=0):
    """The pixels of the visible canvas, [height, width, 4], when nothing is being drawn any more."""
    page.eval("new Promise(done => setTimeout(() => requestAnimationFrame(() => requestAnimationFrame(done)), 150))")
    size, data = page.eval(f"""(() => {{
      const canvas = [...document.querySelectorAll('.explorer .half:not([hidden]) .pane:not([hidden]) canvas')][{half}];
      const image = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
      let text = '';
      for (let n = 0; n < image.data.length; n += 8192) text += String.fromCharCode(...image.data.subarray(n, n + 8192));
      return [[canvas.height, canvas.width], btoa(text)];
    }})()""")
    return np.frombuffer(base64.b64decode(data), np.uint8).reshape(*size, 4)


def box_of(page, selector):
    return page.eval(f"(b => [b.left, b.top, b.width, b.height])(document.querySelector({json.dumps(selector)}).getBoundingClientRect())")


def saved(page, kind="SVG"):
    """What the button gives to the browser: SVG text, or the size and bytes of a PNG."""
    page.eval("(() => { const make = URL.createObjectURL; window.blobs = []; URL.createObjectURL = blob => { window.blobs.push(blob); return make(blob); }; })()")
    page.eval(f"document.querySelector('.explorer header button[title*={kind}]').click()")
    page.wait("window.blobs.length > 0")
    if kind == "SVG":
        return page.eval("window.blobs[0].text()")
    return base64.b64decode(page.eval("window.blobs[0].arrayBuffer().then(data => btoa(String.fromCharCode(...new Uint8Array(data))))"))
