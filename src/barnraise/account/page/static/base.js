// The namespace of the page, elements from values (never from HTML), and quantities as text.
"use strict";
var barn = { views: {} };
(function () {
  // Return an element: attributes by name (functions are listeners), then children; texts stay texts.
  barn.el = function (tag, attributes) {
    var made = document.createElement(tag);
    Object.keys(attributes || {}).forEach(function (name) {
      var value = attributes[name];
      if (typeof value === "function") made.addEventListener(name, value);
      else if (name === "class") made.className = value;
      else if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value === true ? "" : value);
    });
    for (var at = 2; at < arguments.length; at++) barn.add(made, arguments[at]);
    return made;
  };
  barn.add = function (parent, child) {
    if (Array.isArray(child)) child.forEach(function (one) { barn.add(parent, one); });
    else if (child !== null && child !== undefined && child !== "") parent.append(child);
    return parent;
  };
  barn.fill = function (parent) {
    parent.replaceChildren();
    for (var at = 1; at < arguments.length; at++) barn.add(parent, arguments[at]);
    return parent;
  };

  barn.number = function (value) {
    if (value === null || value === undefined) return "-";
    return Math.abs(value) >= 100 || Number.isInteger(value) ? Math.round(value).toLocaleString("en") : String(+value.toPrecision(3));
  };
  barn.short = function (value) {
    if (value === null || value === undefined) return "-";
    var units = ["", "k", "M", "G", "T"], at = 0;
    while (Math.abs(value) >= 999.5 && at < 4) { value /= 1000; at++; }
    return +value.toPrecision(3) + units[at];
  };
  barn.bytes = function (value) {
    if (!value) return value === 0 ? "0 B" : "-";
    return barn.short(value).replace(/([kMGT]?)$/, " $1B");
  };
  barn.percent = function (value) { return value === null || value === undefined ? "-" : +(100 * value).toFixed(Math.abs(value) < 0.1 ? 2 : 1) + "%"; };
  barn.duration = function (seconds) {
    if (seconds === null || seconds === undefined || !isFinite(seconds)) return "-";
    var whole = Math.round(seconds);
    if (whole < 60) return whole + " s";
    if (whole < 3600) return Math.floor(whole / 60) + " min " + (whole % 60 ? (whole % 60) + " s" : "");
    if (whole < 86400) return Math.floor(whole / 3600) + " h " + Math.floor(whole % 3600 / 60) + " min";
    return Math.floor(whole / 86400) + " d " + Math.floor(whole % 86400 / 3600) + " h";
  };
  barn.loss = function (value) { return value === null || value === undefined ? "-" : value.toFixed(value < 0.1 ? 4 : 3); };

  // Return a table of rows (arrays of texts or elements); `right` lists the columns of numbers.
  barn.table = function (header, rows, right, caption) {
    var numeric = function (at) { return (right || []).indexOf(at) >= 0 ? "n" : header[at] === "at" ? "t" : ""; };
    return barn.el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Table: " + (caption || header.join(", ")) },
      barn.el("table", {},
        barn.el("thead", {}, barn.el("tr", {}, header.map(function (one, at) {
          return barn.el("th", { scope: "col", class: numeric(at) }, one);
        }))),
        barn.el("tbody", {}, rows.map(function (row) {
          return barn.el("tr", {}, row.map(function (cell, at) { return barn.el("td", { class: numeric(at) }, cell); }));
        }))));
  };
  barn.card = function (title) {
    var made = barn.el("section", { class: "card", "aria-label": title }, barn.el("h2", {}, title));
    for (var at = 1; at < arguments.length; at++) barn.add(made, arguments[at]);
    return made;
  };
  // Return a colour of the style; they are looked up again where the scheme changes.
  var colours = {};
  barn.colour = function (name) {
    if (!colours[name]) colours[name] = getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
    return colours[name];
  };
  if (window.matchMedia) matchMedia("(prefers-color-scheme: dark)").addEventListener("change", function () { colours = {}; });

  // Ask the server; reject with its message.
  barn.ask = function (path, given) {
    var options = given === undefined ? {} : {
      method: "POST", body: JSON.stringify(given), headers: { "Content-Type": "application/json", "X-Barnraise": "1" },
    };
    return fetch(path, options).then(function (answer) {
      return answer.text().then(function (text) {
        var told;
        try { told = JSON.parse(text); } catch (unreadable) { told = { error: text.trim() }; }
        if (!answer.ok) throw new Error(told.error || "the server answers " + answer.status);
        return told;
      });
    });
  };
})();
