module.exports = {
  main: async function (event, context) {
    return `hello ${event.data.name ?? 'world'}`;
  },
};
