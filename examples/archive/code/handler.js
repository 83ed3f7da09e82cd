const { pick } = require('./lib/pick.js');
const ms = require('ms');
const quotes = require('./quotes.json');

module.exports = {
  main: (event) => ({ quote: pick(quotes, event.data?.day ?? 0), next: ms('1d') }),
};
